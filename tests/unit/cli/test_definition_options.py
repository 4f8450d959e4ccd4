"""The commands `create` and `alter` know every option of a stream table."""

import inspect

from pgtrickle_assets.cli.definition_options import given_options
from pgtrickle_assets.stream_table import StreamTableOptions


def test_every_option_of_a_stream_table_can_be_given():
    assert set(inspect.signature(given_options).parameters) == set(StreamTableOptions.model_fields)
