import pickle

import pytest

from pgtrickle_assets.capture.dsn import FixedDsn, place
from pgtrickle_assets.errors import ConfigurationError


def test_a_place_names_everything_but_the_password():
    text = str(place("postgresql://me:secret@db.example:6432/shop"))
    assert text == "database 'shop' on db.example:6432 as user 'me'"


@pytest.mark.parametrize("dsn", ["postgresql://u:secret@h:port/d", "host='secret", "secret"])
def test_an_unreadable_string_is_not_repeated(dsn):
    with pytest.raises(ConfigurationError) as error:
        place(dsn)
    assert "secret" not in str(error.value)


def test_a_dsn_is_pickled_but_not_shown():
    dsn = FixedDsn("postgresql://u:secret@h/d")
    assert "secret" not in repr(dsn)
    assert pickle.loads(pickle.dumps(dsn))() == dsn()
