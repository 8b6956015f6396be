"""A question that measurements do not answer is refused with what is missing and its price."""

import pytest

import psephos as ps
from tests.release.conftest import RELEASE, write_job

AGES = '[[tables]]\nname = "ages"\nrows = ["age.broad"]\n'


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    start, _, rest = RELEASE.partition("[[tables]]")
    text = start + AGES + rest[rest.index("[selection]") :]
    return ps.rehearse(write_job(tmp_path_factory.mktemp("job"), text))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "SELECT pet, COUNT(*) FROM people GROUP BY pet",
            "the count by pet: nothing measured tells values of pet apart",
        ),
        (
            "SELECT COUNT(*) FROM people WHERE age < 3 AND pet = 'cat'",
            "the count where age < 3 and pet = 'cat': age was measured by broad and not finer; "
            "nothing measured tells values of pet apart",
        ),
        ("SELECT age, COUNT(*) FROM people GROUP BY age", "age was measured by broad"),
    ],
)
def test_what_is_missing_is_said_with_its_price(bundle, sql, words):
    with pytest.raises(ps.UnsupportedError) as refusal:
        ps.ask(bundle, sql)
    message = str(refusal.value)
    assert f"This release does not tell {words}" in message or words in message
    assert "it would cost epsilon" in message
    assert "--plus-minus" in message
    assert "--model" in message
    assert "'total'" not in message


def test_attributes_that_were_measured_apart(tmp_path):
    start, _, rest = RELEASE.partition("[[tables]]")
    pets = '[[tables]]\nname = "pets"\nrows = ["pet"]\n'
    text = (
        start + AGES + pets + rest[rest.index("[selection]") :].replace("opt_product", "opt_union")
    )
    bundle = ps.rehearse(write_job(tmp_path, text))
    with pytest.raises(ps.UnsupportedError, match="age, pet were measured, but not together"):
        ps.ask(bundle, "SELECT pet, COUNT(*) FROM people WHERE age < 6 GROUP BY pet")


def test_columns_that_are_looked_at_together_have_no_price(bundle):
    with pytest.raises(ps.UnsupportedError, match="looks at several columns together") as refusal:
        ps.ask(bundle, "SELECT COUNT(*) FROM people WHERE age < 3 OR pet = 'cat'")
    assert "cost" not in str(refusal.value)
