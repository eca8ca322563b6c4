"""The rates in compiler/device/gpus.c are those that fit.py finds in measured/h100.tsv, within 2 %."""
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = (HERE.parents[1] / "compiler/device/gpus.c").read_text()
NUMBER = r"(\d[\d.]*(?:e[+-]?\d+)?)"


def numbers(text):
    """By name, of ".name = number". A product of two factors is the first one, and the second under "hot"."""
    found = {name: float(x) for name, x in re.findall(r"\.(\w+) = " + NUMBER, text)}
    hot = re.search(r"\.large = " + NUMBER + r" \* " + NUMBER, text)
    return {**found, "hot": float(hot.group(2))} if hot else found


class Fit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.printed = subprocess.run([sys.executable, HERE / "fit.py"], check=True, capture_output=True, text=True).stdout

    def test_products(self):
        for precision in ("f32", "tf32", "bf16"):
            part = re.search(rf"^{precision}: (.*(?:\n .*)*)", self.printed, re.M).group(1)
            fitted = numbers(part.splitlines()[0])
            if hot := re.search(r"a millisecond and more: " + NUMBER, part):
                fitted["hot"] = float(hot.group(1))
            row = re.search(rf"\[PRECISION_{precision.upper()}\] =\s*\{{(.*?)\}}", SOURCE, re.S).group(1)
            used = numbers(row)
            # factors of bf16 are copied, and f32 does not depend on rows of 16 bytes
            for name in fitted.keys() - ({"odd"} if precision != "tf32" else set()):
                self.assertAlmostEqual(used[name] / fitted[name], 1, delta=0.02, msg=f"{precision} {name}")

    def test_attention(self):
        fitted = [float(x) for pair in re.findall(r"(?:forward|backward) *: ([\d.e+]+), *(\d+);", self.printed) for x in pair]
        table = re.search(r"attention\[2\]\[2\]\[2\] = \{(.*?)\};", SOURCE, re.S).group(1)
        used = [float(x) for x in re.findall(NUMBER, table)]
        self.assertEqual(len(used), 16)
        for x, y in zip(sorted(used), sorted(fitted)):
            self.assertAlmostEqual(x / y, 1, delta=0.02)


if __name__ == "__main__":
    unittest.main()
