"""For Kubernetes: the Helm chart with the index of a chart repository, and `deploy/base` as one manifest."""

import gzip
import io
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import sbom
from artefacts import Artefact, Work
from images import archive_of, digest

_TIME = re.compile(r'(?<=created: )".*"|(?<=generated: )".*"')


def make(work: Work) -> Iterator[Artefact | Path]:
    """Each says which image it runs; nothing else comes with it."""
    image = (_image(work),)
    chart = make_chart(work)
    yield Artefact(chart, f"pkg:helm/arpguard@{work.release.version}", image)
    yield make_index(work, chart)
    yield Artefact(make_manifest(work), f"pkg:generic/arpguard@{work.release.version}?file_name=install.yaml", image)


def make_chart(work: Work) -> Path:
    """As `helm package` makes it, but for the time at which it did."""
    made = work.stage / ".chart"
    work.run(_tool("helm"), "package", "deploy/helm/arpguard", "--destination", str(made))
    (packed,) = made.glob("*.tgz")
    with tarfile.open(packed) as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers() if each.isfile()}
        contents = {name: file.read() for name, file in files.items() if file}

    chart = work.out / packed.name
    with (
        chart.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as out,
        tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in sorted(contents.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), work.epoch, 0o644
            archive.addfile(info, io.BytesIO(content))
    return chart


def make_index(work: Work, chart: Path) -> Path:
    """As `helm repo index` makes it; the chart lies beside it, whatever the repository's address is."""
    folder = work.stage / ".index"
    folder.mkdir()
    shutil.copy(chart, folder)
    work.run(_tool("helm"), "repo", "index", str(folder))

    moment = time.strftime('"%Y-%m-%dT%H:%M:%SZ"', time.gmtime(work.epoch))
    index = work.out / "index.yaml"
    index.write_text(_TIME.sub(moment, (folder / "index.yaml").read_text(encoding="utf-8")), encoding="utf-8")
    return index


def make_manifest(work: Work) -> Path:
    """What `kubectl apply -k deploy/base` applies."""
    head = f"# arpguard {work.release.version}, which only observes until the ConfigMap says `mode: enforce`\n"
    manifest = work.out / "install.yaml"
    manifest.write_text(head + work.run(_tool("kustomize"), "build", "deploy/base"), encoding="utf-8")
    return manifest


def _image(work: Work) -> sbom.Component:
    """The image that both run; its digest is known where the image is built."""
    image, version = work.release.image, work.release.version
    known = archive_of(work)
    at = f"@{quote(digest(known), safe='')}" if known.exists() else ""
    purl = f"pkg:oci/{image.rpartition('/')[2]}{at}?repository_url={quote(image, safe='')}&tag={version}"
    return sbom.component(image, version, purl) | {"type": "container"}


def _tool(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is missing: `make .venv/bin/{name}` builds it where there is Go")
    return found
