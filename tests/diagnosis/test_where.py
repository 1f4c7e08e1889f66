import torch

from pullback.diagnosis.where import describe

x = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0], [7.0, 8.0, -9.0]], dtype=torch.float64)


def changed(mask, value=0.0):
    return torch.where(mask, value, x), x


def test_rows_and_columns():
    rows = torch.tensor([False, False, True])
    assert describe(*changed(rows[:, None].expand(3, 3))) == "rows 2 of 3 is wrong, the others right; got is 0 there"
    assert describe(*changed(rows[None].expand(3, 3), torch.nan)) == "columns 2 of 3 is wrong, the others right; got NaN there"


def test_a_condition_on_an_operand():
    text = describe(torch.where(x < 0, -x, x), x, {"x": x})
    assert text == "wrong exactly where x < 0 (4 of 9 elements); got has the opposite sign there"


def test_everywhere_scattered_and_nowhere():
    assert describe(2 * x + 1, x).startswith("every element is wrong; got / expected lies between")
    scattered = torch.tensor([[True, False, False], [False, True, False], [False, False, False]])
    assert describe(*changed(scattered)) == "2 of 9 elements are wrong, scattered; got is 0 there"
    assert describe(x, x) == ""
    assert describe(x[:0], x[:0]) == ""
