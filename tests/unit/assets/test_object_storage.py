"""The lake's object store from dagster-aws' resource."""

from __future__ import annotations

import dagster as dg
from dagster_aws.s3 import S3Resource

from pgtrickle_assets import Project
from pgtrickle_assets.connections import Connections
from pgtrickle_assets.settings import Settings
from resources.object_storage import s3_storage_options


def test_an_s3_resource_gives_endpoint_and_credentials_and_reads_variables_late(monkeypatch):
    resource = S3Resource(
        endpoint_url="http://127.0.0.1:9000",
        region_name="eu-north-1",
        aws_access_key_id="key",
        aws_secret_access_key=dg.EnvVar("TEST_LAKE_SECRET"),
    )
    monkeypatch.setenv("TEST_LAKE_SECRET", "hush")
    assert s3_storage_options(resource) == {
        "endpoint": "http://127.0.0.1:9000",
        "region": "eu-north-1",
        "access_key_id": "key",
        "secret_access_key": "hush",
        "max_attempts": "5",
    }


def test_what_a_resource_leaves_open_is_left_to_the_environment():
    assert s3_storage_options(S3Resource()) == {"max_attempts": "5"}
    assert s3_storage_options(S3Resource(use_unsigned_session=True))["anonymous"] == "true"


def test_a_profile_is_turned_into_its_keys(monkeypatch, tmp_path):
    file = tmp_path / "credentials"
    file.write_text("[lake]\naws_access_key_id = key\naws_secret_access_key = hush\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    options = s3_storage_options(S3Resource(profile_name="lake"))
    assert (options["access_key_id"], options["secret_access_key"], options["region"]) == ("key", "hush", "eu-west-1")


def test_a_resource_is_stronger_than_the_project_file_and_shows_nothing(tmp_path):
    lake = {"catalog": "dbname=x", "data_path": "s3://b/p", "storage": {"region": "old", "url_style": "path"}}
    project = Project([], lake=lake, home=tmp_path).with_storage({"region": "new", "secret_access_key": "hush"})
    location = Connections(project, Settings(home=tmp_path)).lake_location()
    assert location.storage_options == {"region": "new", "url_style": "path", "secret_access_key": "hush"}
    assert "hush" not in repr(project.lake) + repr(location)
