"""The tests' own client understands the kubeconfigs of real clusters."""

from base64 import b64decode

import pytest
import yaml

from support.kube.plain_http import Api, real_kubeconfig


@pytest.fixture
def kubeconfig(server, tmp_path):
    """As kubeadm's tools and kubectl write it: with names of files beside it."""
    server.do(lambda it: it.add_client("admin"))
    config = server.do(lambda it: it.kubeconfig("admin"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    (tmp_path / "ca.crt").write_bytes(b64decode(cluster.pop("certificate-authority-data")))
    (tmp_path / "token").write_text(user.pop("token") + "\n")
    cluster["certificate-authority"], user["tokenFile"] = "ca.crt", "token"
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def test_files_that_a_kubeconfig_names_are_read(kubeconfig):
    assert Api(real_kubeconfig(str(kubeconfig))).ask("GET", "/api/v1/namespaces").code == 200


def test_authority_in_a_file_is_what_servers_are_checked_against(kubeconfig, tmp_path):
    config = real_kubeconfig(str(kubeconfig))
    del config["clusters"][0]["cluster"]["certificate-authority"]

    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        Api(config).ask("GET", "/api/v1/namespaces")
