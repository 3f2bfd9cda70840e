"""What config/deploy holds is read as it will be there: the configurations, their token, and who has to send it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy import config
from proxy.config import InvalidConfig

DEPLOY = Path(__file__).parents[2] / "config" / "deploy"
TOKEN = "a-token-of-operators"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_composes_configuration_takes_the_token_that_compose_gives_it() -> None:
    [compose] = documents("compose.yaml")
    [variable] = compose["services"]["crossover"]["environment"]
    token = config.load(DEPLOY / "etc" / "crossover.yaml", {variable: TOKEN}).admin.token
    assert token is not None
    assert token.get_secret_value() == TOKEN
    with pytest.raises(InvalidConfig, match=variable):
        config.load(DEPLOY / "etc" / "crossover.yaml", {})


def test_prometheus_sends_the_token_from_the_secret_that_compose_mounts() -> None:
    [compose], [prometheus] = documents("compose.yaml"), documents("prometheus.yaml")
    [secret] = compose["services"]["prometheus"]["secrets"]
    [job] = [job for job in prometheus["scrape_configs"] if job["job_name"] == "crossover"]
    assert job["authorization"] == {"credentials_file": f"/run/secrets/{secret}"}
    assert [compose["secrets"][secret]["environment"]] == list(compose["services"]["crossover"]["environment"])


def test_prometheus_finds_the_rules_that_compose_mounts() -> None:
    [compose], [prometheus] = documents("compose.yaml"), documents("prometheus.yaml")
    mounts = [volume.split(":")[:2] for volume in compose["services"]["prometheus"]["volumes"]]
    rules = {target: DEPLOY / source for source, target in mounts if source.endswith(".yml")}
    assert sorted(rules) == sorted(f"/etc/prometheus/{name}" for name in prometheus["rule_files"])
    assert all(path.resolve().is_file() for path in rules.values())


def test_the_pods_configuration_takes_the_token_from_the_mounted_secret(tmp_path: Path) -> None:
    [text] = [each["data"]["crossover.yaml"] for each in documents("kubernetes.yaml") if each["kind"] == "ConfigMap"]
    [pod] = [each["spec"]["template"]["spec"] for each in documents("kubernetes.yaml") if each["kind"] == "Deployment"]
    [volume] = [each["name"] for each in pod["volumes"] if "secret" in each]
    [mount] = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume]
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "crossover.yaml").write_text(text.replace(mount, str(tmp_path)))
    token = config.load(tmp_path / "crossover.yaml", {}).admin.token
    assert token is not None
    assert token.get_secret_value() == TOKEN


def test_the_pod_is_scraped_by_the_name_of_the_job_that_the_alerts_ask_for() -> None:
    alerts = (DEPLOY.parent / "prometheus" / "crossover.alerts.yml").read_text()
    [endpoint] = documents("podmonitor.yaml")[0]["spec"]["podMetricsEndpoints"]
    [relabeling] = [each for each in endpoint["relabelings"] if each["targetLabel"] == "job"]
    assert set(re.findall(r'job="([^"]*)"', alerts)) == {relabeling["replacement"]}


def test_the_pods_annotations_tell_the_name_of_the_job() -> None:
    text = re.sub(r"\n *# +", " ", (DEPLOY / "kubernetes.yaml").read_text())
    (rule,) = re.findall(r"- (\{source_labels: .*?\})", text)
    found = yaml.safe_load(rule)
    assert (found["target_label"], found["replacement"]) == ("job", "crossover")


def test_the_pod_monitor_finds_the_pod_its_port_and_its_token() -> None:
    [monitor] = documents("podmonitor.yaml")
    by_kind = {each["kind"]: each for each in documents("kubernetes.yaml")}
    template = by_kind["Deployment"]["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert endpoint["port"] in ports
    [secret] = [each["secret"]["secretName"] for each in template["spec"]["volumes"] if "secret" in each]
    assert endpoint["authorization"]["credentials"] == {"name": secret, "key": "token"}


def test_an_image_that_was_loaded_into_the_node_is_not_pulled() -> None:
    [pod] = [each["spec"]["template"]["spec"] for each in documents("kubernetes.yaml") if each["kind"] == "Deployment"]
    assert pod["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_the_images_health_is_asked_on_the_operators_port() -> None:
    [check] = re.findall(
        r"^HEALTHCHECK .*\\\n +CMD (.*)$", (DEPLOY.parents[1] / "Dockerfile").read_text(), re.MULTILINE
    )
    backends = {role: {"url": f"http://{role}:1"} for role in ("speculative", "baseline")}
    admin = config.from_mapping({"backends": backends, "placement": "separate"}).admin
    assert f"('{admin.host}', {admin.port}, " in check
    assert "'/health'" in check


# ---------------------------------------------------------------- where what is learned can be kept


def named_state_file(text: str) -> str:
    """The file that a comment tells to name."""
    (found,) = set(re.findall(r"state_file: (/[\w./]+)", text))
    return found


def test_the_unit_may_write_where_it_tells_to_keep_what_is_learned() -> None:
    text = (DEPLOY / "crossover.service").read_text()
    assert "\nStateDirectory=crossover\n" in text
    assert named_state_file(text).startswith("/var/lib/crossover/")


def test_composes_volume_is_where_it_tells_to_keep_what_is_learned_and_the_images_users() -> None:
    text, image = (DEPLOY / "compose.yaml").read_text(), (DEPLOY.parents[1] / "Dockerfile").read_text()
    [compose] = documents("compose.yaml")
    mounts = [each.split(":") for each in compose["services"]["crossover"]["volumes"]]
    (folder,) = [target for _, target, *mode in mounts if not mode]
    assert named_state_file(text).startswith(f"{folder}/")
    assert set(compose["volumes"]) == {"state"}
    (user,) = re.findall(r"^USER (\d+):\d+$", image, re.MULTILINE)
    assert f"-o {user} -g {user} {folder}\n" in image


def test_the_pods_commented_lines_give_it_a_folder_to_keep_what_is_learned() -> None:
    text = (DEPLOY / "kubernetes.yaml").read_text()
    opened = re.sub(r"^( *)#(-|  persistent|fsGroup)", r"\1\2", text, flags=re.MULTILINE)
    [pod] = [each["spec"]["template"]["spec"] for each in yaml.safe_load_all(opened) if each["kind"] == "Deployment"]
    (volume,) = [each for each in pod["volumes"] if "persistentVolumeClaim" in each]
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]
    assert "readOnly" not in mount
    assert named_state_file(text).startswith(f"{mount['mountPath']}/")
    assert pod["securityContext"]["fsGroup"] == 10001
