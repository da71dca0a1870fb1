"""Which scenarios are run, and what is said of those that cannot be."""

import pytest

from arpguard.errors import ConfigError
from arpguard_lab import runner

WITH_KEEPALIVED = ["keepalived", "keepalived-vmac", "keepalived-ipv6", "keepalived-followed"]


@pytest.fixture
def without_keepalived(monkeypatch):
    monkeypatch.setattr(runner, "find", lambda _program: None)


def test_where_a_program_is_missing_its_scenarios_are_left_out_with_the_remedy(without_keepalived):
    left_out = runner.left_out()

    assert list(left_out) == WITH_KEEPALIVED
    assert left_out["keepalived"] == "keepalived is missing: apt-get install keepalived"


def test_one_that_is_named_is_refused_with_the_remedy(without_keepalived):
    with pytest.raises(ConfigError, match="apt-get install keepalived"):
        runner.run(["flux", "keepalived"], nodes=2)


@pytest.mark.parametrize(("name", "said"), [("fluxx", "fluxx: did you mean 'flux'?"), ("nonsense", "one of flux, ")])
def test_scenario_that_does_not_exist_is_refused_with_the_one_that_was_likely_meant(name, said):
    with pytest.raises(ConfigError) as refused:
        runner.run([name], nodes=2)

    assert said in str(refused.value)


def test_where_it_is_installed_nothing_is_left_out(monkeypatch):
    monkeypatch.setattr(runner, "find", lambda program: f"/usr/sbin/{program}")

    assert runner.left_out() == {}


def test_another_api_server_is_not_written_to_outside_of_the_labs_namespace(monkeypatch):
    monkeypatch.setenv("ARPGUARD_TEST_KUBECONFIG", "/etc/kubernetes/admin.conf")

    assert list(runner.left_out(kubernetes=True)) == ["follow-metallb"]
    with pytest.raises(ConfigError, match="ARPGUARD_TEST_KUBECONFIG"):
        runner.run_kubernetes(["follow-metallb"], nodes=2, rounds=None)


def test_with_the_labs_own_server_nothing_is_left_out(monkeypatch):
    monkeypatch.delenv("ARPGUARD_TEST_KUBECONFIG", raising=False)

    assert runner.left_out(kubernetes=True) == {}
