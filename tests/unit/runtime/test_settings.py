"""Which configuration is in force: the file's, the ConfigMap's, or the last good one of either."""

import pytest

from arpguard.config.model import CONFIG_KEY, VouchingConfig, VouchingProfile
from arpguard.core.cluster import ConfigMap
from arpguard.errors import ConfigError
from arpguard.runtime.settings import PATIENCE_NS, Settings
from arpguard.verdict import Mode

OBSERVE, ENFORCE = "mode: observe\n", "mode: enforce\n"
WRONG = "mode: perhaps\n"
CONFIGMAP = "arpguard/config"
LISTEN = "grpc: {listen: ['127.0.0.1:7']}\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(OBSERVE)
    return path


def a_configmap(text: str | None) -> ConfigMap:
    return ConfigMap("arpguard", "config", text=text)


def test_file_alone_is_in_force(file):
    settings = Settings(file)

    assert (settings.config.mode, settings.awaited, settings.problems()) == (Mode.OBSERVE, False, [])
    assert (settings.in_force.source, settings.in_force.generation) == (str(file), 1)


def test_file_is_read_again_and_counted(file):
    settings = Settings(file)
    file.write_text(ENFORCE)

    assert settings.read_file()

    assert (settings.config.mode, settings.in_force.generation) == (Mode.ENFORCE, 2)


def test_unchanged_file_is_no_new_configuration(file):
    settings = Settings(file)
    before = settings.config

    assert settings.read_file()

    assert settings.config is before
    assert settings.in_force.generation == 1


def test_wrong_file_at_start_is_refused(file):
    file.write_text(WRONG)

    with pytest.raises(ConfigError):
        Settings(file)


def test_wrong_file_keeps_the_last_good_one_and_says_why(file):
    settings = Settings(file)
    file.write_text(WRONG)

    assert settings.read_file()

    assert settings.config.mode is Mode.OBSERVE
    (problem,) = settings.problems()
    assert problem.startswith("configuration: change rejected; keeping the previous configuration: ")
    assert "perhaps" in problem


def test_mended_file_takes_the_problem_away(file):
    settings = Settings(file)
    file.write_text(WRONG)
    settings.read_file()
    file.write_text(OBSERVE)

    assert settings.read_file()

    assert settings.problems() == []


def test_file_that_is_gone_has_to_be_read_again_and_is_told_of(file):
    settings = Settings(file)
    file.unlink()

    assert not settings.read_file()

    assert settings.config.mode is Mode.OBSERVE
    assert any(
        problem == f"configuration: {file} is gone; keeping the previous configuration"
        for problem in settings.problems()
    )


def test_configmap_is_awaited_and_the_file_stands_in_for_it(file):
    settings = Settings(file, CONFIGMAP)

    assert settings.awaited is True
    assert settings.config.mode is Mode.OBSERVE


def test_configmap_that_does_not_come_is_a_problem_and_one_that_has_just_been_asked_for_is_none(file):
    now = [7]
    settings = Settings(file, CONFIGMAP, lambda: now[0])
    now[0] += PATIENCE_NS - 1
    assert settings.problems() == []

    now[0] += 1
    assert settings.problems() == [f"configuration: ConfigMap {CONFIGMAP} has not been read yet"]


def test_number_of_vips_that_is_logged_is_that_of_the_list_and_says_so(file, caplog):
    settings = Settings(None, CONFIGMAP)

    with caplog.at_level("INFO"):
        settings.read_configmap(a_configmap(ENFORCE))

    assert caplog.messages == ["configuration applied: mode=enforce listed_vips=0"]


def test_file_is_followed_until_the_configmap_was_read(file):
    settings = Settings(file, CONFIGMAP)
    file.write_text(ENFORCE)

    assert settings.read_file()

    assert settings.config.mode is Mode.ENFORCE
    assert settings.awaited is True


def test_configmap_wins_over_the_file_for_good(file):
    settings = Settings(file, CONFIGMAP)

    assert settings.read_configmap(a_configmap(ENFORCE)) == ""
    file.write_text("mode: observe\ninterfaces: [eth9]\n")
    assert settings.read_file()

    assert (settings.config.mode, settings.awaited, settings.problems()) == (Mode.ENFORCE, False, [])
    assert settings.in_force.source == f"ConfigMap {CONFIGMAP}"


def test_configmap_without_a_file_begins_with_the_defaults():
    settings = Settings(None, CONFIGMAP)

    assert settings.awaited is True
    assert settings.config.mode is Mode.OBSERVE
    settings.read_configmap(a_configmap(ENFORCE))
    assert settings.config.mode is Mode.ENFORCE


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, f"configuration: ConfigMap {CONFIGMAP} does not exist; keeping the previous configuration"),
        (a_configmap(None), f"ConfigMap {CONFIGMAP} has no key {CONFIG_KEY}; keeping the previous configuration"),
        (a_configmap(WRONG), "configuration: change rejected; keeping the previous configuration: "),
    ],
    ids=["no ConfigMap", "no key", "wrong"],
)
def test_configmap_of_no_use_keeps_the_last_good_one(file, found, said):
    settings = Settings(file, CONFIGMAP)
    settings.read_configmap(a_configmap(ENFORCE))

    problem = settings.read_configmap(found)

    assert said in problem
    assert settings.problems() == [problem]
    assert settings.config.mode is Mode.ENFORCE
    assert settings.read_configmap(a_configmap(ENFORCE)) == ""
    assert settings.problems() == []


@pytest.mark.parametrize("found", [None, a_configmap(WRONG)], ids=["no ConfigMap", "wrong"])
def test_configmap_stays_awaited_until_a_good_one_was_read(file, found):
    settings = Settings(file, CONFIGMAP)

    settings.read_configmap(found)

    assert settings.awaited is True
    assert settings.config.mode is Mode.OBSERVE


def test_what_the_configmap_leaves_out_of_the_start_stays_the_files(file):
    file.write_text(f"{OBSERVE}{LISTEN}bpf: {{pin_dir: /sys/fs/bpf/mine}}\n")
    settings = Settings(file, CONFIGMAP)

    settings.read_configmap(a_configmap(ENFORCE))

    assert settings.config.grpc.listen == ("127.0.0.1:7",)
    assert str(settings.config.bpf.pin_dir) == "/sys/fs/bpf/mine"
    assert settings.problems() == []


def test_what_a_running_agent_cannot_follow_is_told_of(file):
    settings = Settings(file, CONFIGMAP)

    settings.read_configmap(a_configmap(f"{ENFORCE}bpf: {{pin_dir: /sys/fs/bpf/other}}\n"))

    (problem,) = settings.problems()
    assert problem.startswith("configuration: bpf.pin_dir stays /sys/fs/bpf/arpguard until the agent is restarted")
    assert "/sys/fs/bpf/other" in problem


# ---- vouching ----------------------------------------------------------------------------------------------------

AUTO = "lease: {vouching: auto}\n"
OTHER = "lease: {vouching: {secret: mine, ethertype: 0x88b6, profile: slow}}\n"


def test_vouching_is_that_of_the_file_at_the_start(file):
    file.write_text(OTHER)
    settings = Settings(file)
    assert settings.vouching == VouchingConfig("mine", 0x88B6, VouchingProfile.SLOW)

    file.write_text(OBSERVE)
    settings.read_file()

    assert settings.vouching == VouchingConfig("mine", 0x88B6, VouchingProfile.SLOW)
    (problem,) = settings.problems()
    assert problem == (
        "configuration: lease.vouching stays {secret: mine, ethertype: 0x88B6, profile: slow} until the agent is"
        " restarted (configured: auto)"
    )


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [(OBSERVE, None), (OTHER, VouchingConfig("mine", 0x88B6, VouchingProfile.SLOW)), (AUTO, VouchingConfig())],
    ids=["not asked for", "another", "the same"],
)
def test_vouching_is_that_of_the_configmap_when_it_was_first_read(file, before, meanwhile):
    file.write_text(before)
    settings = Settings(file, CONFIGMAP)
    assert settings.vouching == meanwhile

    file.write_text(f"{ENFORCE}lease: {{vouching: {{}}}}\n")
    settings.read_file()
    assert settings.vouching == meanwhile
    assert settings.problems() == []

    settings.read_configmap(a_configmap(AUTO))
    assert settings.vouching == VouchingConfig()
    assert settings.problems() == []

    settings.read_configmap(a_configmap(OTHER))
    assert settings.vouching == VouchingConfig()
    (problem,) = settings.problems()
    assert problem == (
        "configuration: lease.vouching stays auto until the agent is restarted"
        " (configured: {secret: mine, ethertype: 0x88B6, profile: slow})"
    )

    settings.read_configmap(a_configmap(AUTO))
    assert settings.problems() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [(ENFORCE, VouchingConfig()), (f"{ENFORCE}lease: {{vouching: off}}\n", None)],
    ids=["not asked for", "off"],
)
def test_vouching_is_as_the_configmap_has_it_whatever_the_file_says(file, text, expected):
    file.write_text(OTHER)
    settings = Settings(file, CONFIGMAP)

    settings.read_configmap(a_configmap(text))

    assert (settings.vouching, settings.problems()) == (expected, [])
    assert expected is None or not settings.vouching.asked


def test_nothing_is_vouched_for_before_the_configmap_is_read_unless_the_file_asks_for_it(file):
    file.write_text(OBSERVE)
    assert Settings(file, CONFIGMAP).vouching is None
    assert Settings(None, CONFIGMAP).vouching is None
    assert Settings(file).vouching == VouchingConfig()


def test_vouching_that_is_asked_for_later_is_asked_for_at_once():
    """It is the same vouching; only what an agent reports differs."""
    settings = Settings(None, CONFIGMAP)
    settings.read_configmap(a_configmap(OBSERVE))
    assert settings.vouching is not None
    assert not settings.vouching.asked

    settings.read_configmap(a_configmap(f"{OBSERVE}lease: {{vouching: auto}}\n"))
    assert settings.vouching.asked
    assert settings.problems() == []
