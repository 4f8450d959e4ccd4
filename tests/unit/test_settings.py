import re
from pathlib import Path

import pytest

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.lake.storage import STORAGE_OPTIONS
from pgtrickle_assets.project_config import LakeConfig
from pgtrickle_assets.settings import Settings, load_settings, settings_reference, unknown_variables


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PGTRICKLE_{name.upper()}", raising=False)


def test_defaults_follow_the_reference_system():
    settings = load_settings()
    assert settings.ducklake_sink_max_retries == 3
    assert settings.ducklake_sink_failure_mode == "warn"
    assert settings.ducklake_catalog_schema == "main"
    assert settings.ducklake_compaction_policy == "fallback"
    assert settings.history_retention_days == 30


def test_environment_overrides_project_file_which_overrides_defaults(monkeypatch):
    monkeypatch.setenv("PGTRICKLE_SMALL_DELTA_ROWS", "7")
    settings = load_settings({"small_delta_rows": 5, "history_retention_days": 9})
    assert settings.small_delta_rows == 7
    assert settings.history_retention_days == 9
    assert settings.max_consecutive_errors == 3


def test_an_unknown_override_names_the_nearest_setting():
    with pytest.raises(ConfigurationError, match="Did you mean 'ducklake_sink_max_retries'"):
        load_settings({"ducklake_sink_max_retrys": 4})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ducklake_sink_failure_mode", "ignore"),
        ("ducklake_sink_max_retries", "-1"),
        ("history_retention_days", "soon"),
        ("spark_driver_memory", "lots"),
        ("spark_conf", "{"),
        ("ducklake_catalog_schema", ""),
    ],
)
def test_a_wrong_value_in_the_environment_names_the_variable(monkeypatch, name, value):
    monkeypatch.setenv(f"PGTRICKLE_{name.upper()}", value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert f"PGTRICKLE_{name.upper()}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_secrets_show_neither_in_settings_nor_in_errors(monkeypatch):
    monkeypatch.setenv("PGTRICKLE_CATALOG_DSN", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("PGTRICKLE_SPARK_REMOTE", "sc://h/;token=hunter2")
    assert "hunter2" not in repr(load_settings())
    monkeypatch.setenv("PGTRICKLE_SPARK_DRIVER_MEMORY", "hunter2")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_an_empty_variable_means_not_set(monkeypatch):
    monkeypatch.setenv("PGTRICKLE_CATALOG_DSN", "")
    monkeypatch.setenv("PGTRICKLE_DATA_PATH", "")
    settings = load_settings()
    assert settings.catalog_dsn is None
    assert settings.data_path is None


def test_extra_configuration_takes_json_and_plain_yaml_values(monkeypatch):
    monkeypatch.setenv("PGTRICKLE_SPARK_CONF", '{"spark.a": true, "spark.b": 3}')
    assert load_settings().spark_conf == {"spark.a": "true", "spark.b": "3"}
    options = load_settings({"embedded_postgres_options": {"fsync": False, "max_connections": 20}})
    assert options.embedded_postgres_options == {"fsync": "false", "max_connections": "20"}


def test_unknown_variables_are_warned_about_with_the_nearest_name():
    environment = {
        "PGTRICKLE_DUCKLAKE_SINK_MAX_RETRY": "1",
        "PGTRICKLE_HOME": "x",
        "PATH": "y",
        "PGTRICKLE_MY_DSN": "z",
    }
    warnings = unknown_variables(environment, known=["PGTRICKLE_MY_DSN"])
    assert len(warnings) == 1
    assert "PGTRICKLE_DUCKLAKE_SINK_MAX_RETRIES" in warnings[0]


def test_the_reference_documents_every_setting_completely():
    rows = settings_reference()
    assert [row.name for row in rows] == list(Settings.model_fields)
    for row in rows:
        assert row.description.endswith("."), row.name
        assert row.effect.endswith("."), row.name
        assert row.group, row.name
        assert row.type, row.name
        assert row.variable == f"PGTRICKLE_{row.name.upper()}"


def test_the_reference_knows_which_settings_are_secret():
    secret = {row.name for row in settings_reference() if row.secret}
    assert secret == {"catalog_dsn", "dagster_dsn", "spark_remote"}


def test_the_reference_shows_defaults_as_a_user_writes_them():
    defaults = {row.name: row.default for row in settings_reference()}
    assert defaults["home"] == str(Path(".pgtrickle"))
    assert defaults["spark_ui"] == "false"
    assert defaults["spark_conf"] == ""
    assert defaults["catalog_dsn"] == ""


def test_the_reference_names_storage_options_that_exist():
    told = re.search(r"storage: .*\n?.*", LakeConfig.__doc__ or "")
    assert told is not None
    names = set(re.findall(r"`([a-z_]+)`", told.group()))
    assert names
    assert names <= STORAGE_OPTIONS


def test_a_value_of_another_form_is_answered_with_an_example(monkeypatch):
    monkeypatch.setenv("PGTRICKLE_SPARK_DRIVER_MEMORY", "lots")
    with pytest.raises(ConfigurationError, match=r"'spark_driver_memory': Write it like '\w+'\."):
        load_settings()
