"""The bundled example as a project folder."""

from pgtrickle_assets.bundled_example import example_folder
from pgtrickle_assets.demo.batches import BATCHES
from pgtrickle_assets.demo.load import SOURCE_TABLES, data_folder
from pgtrickle_assets.option_block import read_stream_table
from pgtrickle_assets.project_config import read_project_config


def test_all_stream_tables_can_be_read_and_are_described() -> None:
    root = example_folder()
    tables = [read_stream_table(file, root) for file in sorted(root.glob("stream_tables/*/*.sql"))]
    assert {table.table.schema for table in tables} == {"silver", "gold"}
    assert all(table.description and table.owners for table in tables)


def test_the_project_names_the_columns_of_every_source_table() -> None:
    config = read_project_config(example_folder())
    assert set(config.sources["flights"].columns) == set(SOURCE_TABLES)
    assert config.sources["flights"].is_embedded


def test_scripts_of_all_batches_exist() -> None:
    scripts = example_folder() / "batches"
    used = {name for batch in BATCHES for name in batch.scripts}
    assert {file.stem for file in scripts.glob("*.sql")} == used


def test_every_source_table_has_a_data_file() -> None:
    files = {file.name.split(".")[0] for file in data_folder().iterdir()}
    assert files == set(SOURCE_TABLES)
