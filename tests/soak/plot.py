"""The curves of a soak, as a PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from record import QUANTITIES, Sample


def draw(path: Path, records: Mapping[str, Sequence[Sample]]) -> None:
    """One panel for each quantity, one line for each node, over minutes."""
    import matplotlib as mpl  # noqa: PLC0415 - a second, and only for this

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, panels = plt.subplots(len(QUANTITIES), 1, sharex=True, figsize=(10, 2.2 * len(QUANTITIES)))
    for panel, (name, quantity) in zip(panels, QUANTITIES.items(), strict=True):
        for node, samples in records.items():
            panel.plot([each["time_s"] / 60 for each in samples], [each[name] for each in samples], label=node)
        panel.set_ylabel(quantity.unit)
        panel.set_ylim(bottom=0, top=1.2 * panel.get_ylim()[1])
        panel.grid(visible=True, alpha=0.3)
    panels[0].legend(loc="upper left", ncols=len(records))
    panels[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)
