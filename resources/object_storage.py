"""Credentials and endpoint of the lake's object store from dagster-aws' `S3Resource`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pgtrickle_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource

_FIELDS = {
    "endpoint_url": "endpoint",
    "region_name": "region",
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


def s3_storage_options(resource: S3Resource) -> Mapping[str, str]:
    """What the resource says, as storage options of a lake; environment variables are read now.

    A field that is not set is left to the environment, as the AWS SDKs read it. A profile is turned into its keys.
    """
    resolved = resource.process_config_and_initialize()
    values = {ours: getattr(resolved, theirs) for theirs, ours in _FIELDS.items()}
    if resolved.profile_name:
        values |= _keys_of_profile(resolved.profile_name)
    options = {name: str(value) for name, value in values.items() if value}
    options["max_attempts"] = str(resolved.max_attempts)
    if not resolved.use_ssl:
        options["use_ssl"] = "false"
    if resolved.use_unsigned_session:
        options["anonymous"] = "true"
    return options


def _keys_of_profile(name: str) -> dict[str, str | None]:
    from boto3.session import Session

    session = Session(profile_name=name)
    found = session.get_credentials()
    if found is None:
        raise ConfigurationError(f"the AWS profile {name!r} has no credentials.")
    keys = found.get_frozen_credentials()
    return {
        "access_key_id": keys.access_key,
        "secret_access_key": keys.secret_key,
        "session_token": keys.token,
        "region": session.region_name,
    }
