import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import money


@pytest.mark.parametrize(("yuan", "fen"), [("0.03", 3), ("1.67", 167), ("19.90", 1990), ("0", 0), ("-2.5", -250)])
def test_yuan_become_fen_exactly(yuan: str, fen: int) -> None:
    assert money.yuan_to_fen(yuan) == fen
    assert money.yuan_to_fen(money.fen_to_yuan(fen)) == fen


@pytest.mark.parametrize("text", ["", "1.234", "1e3", " 1", "1,000", "NaN", "١", "--1", ".5"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        money.yuan_to_fen(text)


def test_display_groups_thousands() -> None:
    assert money.display(123456) == "¥1,234.56"
    assert money.display(-5) == "-¥0.05"
    assert money.display(None) == "–"


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**7), min_size=1, max_size=20))
def test_a_split_is_exact_and_fair(total: int, weights: list[int]) -> None:
    shares = money.split_by_weight(total, weights)
    assert sum(shares) == total
    whole = sum(weights)
    for share, weight in zip(shares, weights, strict=True):
        if whole:
            assert total * weight // whole <= share <= total * weight // whole + 1


def test_ties_go_to_the_lower_line() -> None:
    assert money.split_by_weight(10, [1, 1, 1]) == [4, 3, 3]
    assert money.split_by_weight(5000, [10000, 20000]) == [1667, 3333]


@given(st.integers(0, 10**9), st.integers(1, 200))
def test_units_add_up_in_any_order(total: int, units: int) -> None:
    worths = [money.unit_worth(total, units, ordinal) for ordinal in range(1, units + 1)]
    assert sum(worths) == total
    assert min(worths) >= 0
    assert max(worths) - min(worths) <= 1


def test_three_units_of_ten_yuan() -> None:
    assert [money.unit_worth(1000, 3, ordinal) for ordinal in (1, 2, 3)] == [333, 334, 333]
