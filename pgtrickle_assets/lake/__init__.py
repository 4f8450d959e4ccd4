"""DuckLake: catalog, commits, statistics, files, views, maintenance."""
