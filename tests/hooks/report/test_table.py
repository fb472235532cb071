"""The table: every name whole, every figure with three digits under its head, verdicts first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camapp.hooks.report.records import Snapshot, Verdict
from camapp.hooks.report.table import MOST_LISTED, number, percent
from tests.hooks.report.snapshots import INF, NAN, deep, empty, ordinary, sick, statistics

SMALL = Snapshot(
    7,
    0.25,
    (
        statistics("conv", "activation", shape=(1, 4), norm=2.0, abs_max=1.5, zero_share=0.25),
        statistics("conv", shape=(1, 4), norm=0.5, p50=0.125, p95=0.25, p99=1 / 3),
        statistics("conv.bias", "parameter gradient", shape=(4,), norm=1e-7, abs_max=9e-8, p50=0, p95=0, p99=0),
    ),
)


SMALL_TEXT = """\
step 7, loss 0.25: nothing wrong was found

                      ---- activation ----  -------- gradient --------
layer  class   shape  norm  abs max   zero   norm    p50    p95    p99
conv   Conv2d  1x4    2.00     1.50  25.0%  0.500  0.125  0.250  0.333

                          --------------- gradient --------------
parameter  of      shape      norm  p50  p95  p99   abs max  zero
conv.bias  Conv2d  4      1.00e-07    0    0    0  9.00e-08    0%"""


def test_a_step_prints_as_written_out_here() -> None:
    assert str(SMALL) == SMALL_TEXT


def test_verdicts_come_first_with_their_reasons_and_mark_their_rows() -> None:
    lines = str(sick()).splitlines()
    assert lines[0] == "step 100, loss nan: 7 verdicts"
    for line, verdict in zip(lines[1:8], sick().verdicts, strict=True):
        assert line.split() == [verdict.what, verdict.name, *f"({verdict.of}):".split(), *verdict.why.split()]
    marks = {line.split()[0]: line.partition("<- ")[2] for line in lines[9:] if line}
    assert marks["body.0.softmax@1"] == "non-finite"
    assert marks["body.0.gate"] == "exploding, saturated"
    assert marks["stem.relu"] == "dead"
    assert marks["head.weight"] == "non-finite"
    assert marks["frozen"] == ""


def test_a_verdict_on_the_loss_is_about_no_tensor() -> None:
    lost = Snapshot(3, NAN, (statistics("fc"),), (Verdict("loss", "activation", "non-finite", "The loss is nan."),))
    assert str(lost).splitlines()[:2] == ["step 3, loss nan: 1 verdict", "  non-finite  loss: The loss is nan."]
    assert "loss: The loss is nan." in lost._repr_html_()


def test_a_verdict_on_a_parameter_does_not_mark_a_layer_of_its_name() -> None:
    verdict = Verdict("scale", "parameter gradient", "vanishing", "It is 0.")
    both = Snapshot(0, None, (statistics("scale"), statistics("scale", "parameter gradient")), (verdict,))
    layer, parameter = (line for line in str(both).splitlines() if line.startswith("scale"))
    assert "<-" not in layer
    assert parameter.endswith("<- vanishing")


def test_what_is_not_finite_is_counted_in_its_own_column() -> None:
    row = next(line for line in str(sick()).splitlines() if line.startswith("body.0.softmax@1"))
    cells = row.split()
    assert cells[3:5] == ["inf", "inf"]
    assert cells[6:] == ["3", "nan", "nan", "nan", "nan", "131,072", "<-", "non-finite"]


@pytest.mark.parametrize("snapshot", [ordinary(), sick(), deep()], ids=["ordinary", "sick", "deep"])
def test_no_name_is_cut_and_every_line_of_a_table_is_aligned(snapshot: Snapshot) -> None:
    text = str(snapshot)
    words = text.split()
    for one in snapshot.statistics:
        assert one.name in words
    for name in snapshot.without_gradient:
        assert name in text
    for block in text.split("\n\n")[1:]:
        _, heads, *rows = block.splitlines()
        end = heads.index("norm") + len("norm")  # a column of numbers, all to the right
        for row in rows:
            assert not row[end : end + 2].strip(), row
            assert row[end - 1].strip(), row


def test_three_hundred_layers_fit_160_columns() -> None:
    assert max(map(len, str(deep()).splitlines())) <= 160


def test_many_verdicts_are_counted_but_all_marked() -> None:
    text = str(deep(lost=200, silent=60))
    assert f"and {61 - MOST_LISTED} more, marked in the table" in text
    assert sum("<- vanishing" in line for line in text.splitlines()) == 60


def test_a_step_without_figures_says_so() -> None:
    assert str(empty()) == "step 0: nothing was measured"


def test_layers_without_gradient_are_named() -> None:
    assert "no gradient reached frozen, frozen.bias\n" in str(sick())
    many = Snapshot(0, None, (statistics("a"),), without_gradient=tuple(f"p{k}" for k in range(MOST_LISTED + 5)))
    assert f"p{MOST_LISTED - 1} and 5 more" in str(many)


def test_an_empty_tensor_has_a_row() -> None:
    nothing = statistics("pool", shape=(0, 4), norm=0.0, mean=NAN, abs_max=0.0, zero_share=NAN)
    assert "0x4" in str(Snapshot(0, None, (nothing,)))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1.00"),
        (123.4, "123"),
        (12345.0, "1.23e+04"),
        (0.00012345, "0.000123"),
        (1.2345e-7, "1.23e-07"),
        (999.6, "1.00e+03"),
        (NAN, "nan"),
        (INF, "inf"),
        (-INF, "-inf"),
        (None, ""),
    ],
)
def test_numbers_have_three_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


@given(st.floats(0, 1e300, exclude_min=True))
def test_a_number_reads_back_within_half_a_unit_of_its_third_digit(value: float) -> None:
    shown = number(value)
    assert float(shown) == pytest.approx(value, rel=0.005, abs=3e-324)
    assert len(shown) <= 9


@given(st.floats(0, 1))
def test_only_all_is_a_hundred_percent_and_only_nothing_is_zero(share: float) -> None:
    shown = percent(share)
    assert (shown == "100%") == (share == 1)
    assert (shown == "0%") == (share == 0)
    assert shown not in ("0.0%", "100.0%")


def test_a_notebook_gets_all_names_and_verdicts_escaped() -> None:
    odd = Snapshot(
        3,
        1.0,
        (statistics("a<b>"),),
        (Verdict("a<b>", "gradient", "exploding", "The norm is > 5 & rising."),),
        ("x<y",),
    )
    page = odd._repr_html_()
    assert "a<b>" not in page
    assert "a&lt;b&gt; (gradient): The norm is &gt; 5 &amp; rising." in page
    assert "<code>x&lt;y</code>" in page
    shown = sick()._repr_html_()
    assert shown.count("<tr") == 2 * 2 + 5 + 1  # two lines of heads a table, five layers, one parameter
    assert all(verdict.why.replace("'", "&#x27;") in shown for verdict in sick().verdicts)
    assert shown.count("background:") == 5  # the rows with verdicts
