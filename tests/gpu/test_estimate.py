"""Tests what `estimate` reads out of instructions and of a profile program, on pieces small enough to count by hand."""
import importlib.machinery
import importlib.util
import os
import sys
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import rates

loader = importlib.machinery.SourceFileLoader("estimate", os.path.join(HERE, "estimate"))
estimate = importlib.util.module_from_spec(importlib.util.spec_from_loader("estimate", loader))
loader.exec_module(estimate)

# Three instructions, a loop of seven that may go around two of them, one more, and the jump to itself that ends code.
SASS = """
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/                   MUFU.RCP R1, R0 ;
        /*0020*/                   ISETP.GT.AND P0, PT, R0, 0x5, PT ;
.L_x_1:
        /*0030*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0040*/              @!P0 BRA `(.L_x_2) ;
        /*0050*/                   FADD R4, R4, R5 ;
        /*0060*/                   FADD R4, R4, R6 ;
.L_x_2:
        /*0070*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0080*/                   STG.E.U16 desc[UR4][R2.64], R4 ;
        /*0090*/               @P1 BRA `(.L_x_1) ;
        /*00a0*/                   EXIT ;
.L_x_3:
        /*00b0*/                   BRA `(.L_x_3);
$__internal_0_$__cuda_sm20_rcp_rn_f32_slowpath:
        /*00c0*/                   MUFU.RCP R1, R0 ;
"""

# A loop of three instructions for turns that are left over, two more, and the same loop four times over.
UNROLLED = """
.L_x_1:
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0010*/                   FADD R4, R4, R5 ;
        /*0020*/               @P1 BRA `(.L_x_1) ;
        /*0030*/                   ISETP.GT.AND P0, PT, R0, 0x5, PT ;
        /*0040*/               @P0 BRA `(.L_x_3) ;
.L_x_2:
""" + "".join(f"""
        /*00{i}0*/                   LDG.E.128 R4, desc[UR4][R2.64+{i}] ;
        /*00{i}0*/                   FADD R4, R4, R5 ;
""" for i in range(5, 9)) + """
        /*0090*/               @P1 BRA `(.L_x_2) ;
.L_x_3:
        /*00a0*/                   EXIT ;
"""

PROGRAM = """
static void run_product(void) {
  pd_matmul(logits, x0, x1, nullptr, x2, scratch);
}
  {.signature = "a0", .name = "product",
   .run = run_product, .fill = fill_product, .at = at_product,
   .count = 3, .bytes = 1000, .operations = 2000},
static const struct pd_attention attn = { /* h.0.attn (attention) */
  .batch = 32, .heads = 12, .kv_heads = 12, .length = 1024, .kv_length = 512, .size = 64, .causal = true,
  .q = {.batch = 2359296, .head = 64, .row = 2304},
};
static const struct pd_attention full = { /* attention */
  .batch = 32, .heads = 12, .kv_heads = 12, .length = 1024, .kv_length = 1024, .size = 128, .causal = false,
};
  logits = pd_matmul_new({.batch = 1, .m = 32, .n = 50257, .k = 768, .a_row = 768, .a_column = 1,
      .b_row = 1, .b_column = 768, .c_row = 50257});
  for (int first = 0; first < 2; first++)
    fc_gradient[first] = pd_matmul_new({.batch = 1, .m = 96, .n = 24, .k = 32, .a_row = 1, .a_column = 96,
        .b_row = 24, .b_column = 1, .c_row = 24, .epilogue = PD_SUMS_OF_A, .accumulate = !first});
"""


class Instructions(unittest.TestCase):
    def setUp(self):
        self.code = estimate.Code(SASS)

    def test_loops(self):
        self.assertEqual(len(self.code.lines), 12)
        self.assertEqual(self.code.loops, [(3, 9)])
        self.assertEqual(self.code.bytes(3, 9), 16 + 2)

    def test_a_loop_runs_as_often_as_its_bytes_ask(self):
        once, thrice = self.code.executed(0), self.code.executed(3 * 18)
        self.assertEqual(once, [12, 1, 2])
        self.assertEqual(thrice, [12 + 2 * 7, 1, 2 + 2 * 2])

    def test_turns_that_do_not_fill_an_unrolled_loop(self):
        code = estimate.Code(UNROLLED)
        self.assertEqual(code.loops, [(0, 2), (5, 13)])
        self.assertEqual([code.unrolled_behind(*loop) for loop in code.loops], [4, 0])
        # six turns: two of the first loop, and one and a half of the second
        self.assertEqual(code.executed(6 * 16)[0], 15 + (2 - 1) * 3 + (1.5 - 1) * 9)

    def test_the_common_path_leaves_out_what_only_edges_need(self):
        names = [self.code.lines[i][0] for i in self.code.common_path(3, 9)]
        self.assertEqual(names, ["LDG", "BRA", "HMMA", "STG", "BRA"])


class Programs(unittest.TestCase):
    def test_kernels_and_products(self):
        self.assertEqual(estimate.table_of(PROGRAM), [("product", "run_product", 3, 1000, 2000)])
        self.assertIn("pd_matmul(logits", estimate.body_of(PROGRAM, "run_product"))
        shape = estimate.shapes_of(PROGRAM)["logits"]
        self.assertEqual(estimate.copied_bytes(shape), 2 * 2 * 32 * 50257)
        self.assertEqual(estimate.copied_bytes({**shape, "n": 50304, "c_row": 50304}), 0)

    def test_what_follows_a_product_without_epilogues(self):
        shape = {"m": 32, "n": 64}
        sizes = [estimate.bytes_behind(f, shape) for f in ("pd_matmul", "pd_matmul_gelu", "pd_matmul_gelu_gradient")]
        self.assertEqual(sizes, [0, 2 * 2 * 32 * 64, 3 * 2 * 32 * 64])
        shape = estimate.shapes_of(PROGRAM)["fc_gradient"]
        self.assertEqual(estimate.bytes_behind("pd_matmul_sums", shape), 2 * 32 * 96)
        self.assertEqual(estimate.bytes_behind("pd_matmul_sums", {**shape, "sums_of": "B"}), 2 * 32 * 24)

    def test_launches(self):
        self.assertEqual(estimate.product_of("dim3(32, 8)"), 256)
        self.assertEqual(estimate.product_of("1056"), 1056)

    def test_attention(self):
        self.assertEqual(estimate.attention_of(PROGRAM, "attn"), {"size": 64, "length": 512, "causal": True})
        self.assertEqual(estimate.attention_of(PROGRAM, "full"), {"size": 128, "length": 1024, "causal": False})


# Microseconds of cuBLAS's products of bf16 on an H100 (OpenXLA's table and deepgemm.txt, as rates.py says): (batch, m, n, k).
PUBLISHED = {(4, 4096, 4096, 256): 68.0, (1, 4096, 2048, 512): 19.2, (4, 1024, 4096, 512): 31.7,
             (1, 4096, 4096, 1024): 50.4, (4, 4096, 4096, 1024): 198.0, (1, 4096, 4096, 4096): 174.8, (1, 4096, 32768, 512): 214.2,
             (1, 4096, 24576, 1536): 403.4, (1, 4096, 7168, 2048): 154.1, (1, 4096, 4096, 7168): 291.0,
             (1, 4096, 7168, 16384): 1155.3}


class Products(unittest.TestCase):
    def setUp(self):
        self.cases = [estimate.Estimate(rates.of("sm_90", case), {}, {}) for case in rates.CASES]

    def seconds(self, m, n, k, batch=1, function="pd_matmul", stored=2, case=0):
        size = batch * (2 * k * (m + n) + stored * m * n)
        shape = {"batch": batch, "m": m, "n": n, "k": k, "a_row": k, "a_column": 1, "b_row": n, "b_column": 1, "c_row": n}
        return self.cases[case].product(function, shape, size)

    def test_published_times(self):
        # short runs, so the GPU is cool; the times include a launch
        likely = rates.of("sm_90", "likely")
        cool = {**likely, "sustained": 1, "start": likely["start"] + likely["launch"]}
        self.cases = [estimate.Estimate(cool, {}, {})]
        for (batch, m, n, k), microseconds in PUBLISHED.items():
            with self.subTest(batch=batch, m=m, n=n, k=k):
                self.assertAlmostEqual(self.seconds(m, n, k, batch) * 1e6 / microseconds, 1, delta=0.07)

    def test_a_wave_that_is_not_full_takes_as_long(self):
        # 120, 132 and 144 tiles of 128 x 256
        few, one, two = (self.seconds(128 * 12, 256 * n, 4096) for n in (10, 11, 12))
        self.assertEqual(few, one)
        self.assertGreater(two, 1.2 * one)

    def test_products_of_few_sums_are_slower(self):
        short, long = (self.seconds(32768, 3072, k) / k for k in (256, 4096))
        self.assertGreater(short, 1.3 * long)

    def test_few_tiles_are_split(self):
        # 18 tiles of 128 x 256 would leave 114 multiprocessors idle
        alone = self.cases[0].tiles({"m": 768, "n": 768, "k": 32768}, 1, (128, 256, 1), 4)
        self.assertLess(self.seconds(768, 768, 32768, stored=4), alone / 4)

    def test_epilogues(self):
        plain, gelu = (self.seconds(32768, 3072, 768, function=f, stored=4, case=1) for f in ("pd_matmul", "pd_matmul_gelu"))
        self.assertGreater(gelu, plain)
        self.assertGreater(self.seconds(32768, 3072, 768, function="pd_matmul_gelu_gradient", stored=4, case=1), gelu)
        self.assertGreater(self.seconds(32768, 3072, 768, stored=4), self.seconds(32768, 3072, 768))

    def test_cases_are_in_order(self):
        for m, n, k in ((32768, 768, 768), (768, 768, 32768), (256, 256, 256)):
            times = [self.seconds(m, n, k, case=case) for case in range(3)]
            self.assertEqual(times, sorted(times))


class Totals(unittest.TestCase):
    def test_independent_errors_add_up_as_squares(self):
        def row(kind, *seconds):
            return estimate.Row("", 1, 0, 0, kind, "", seconds, 0)
        rows = [row("products", 3, 5, 9), row("products", 4, 5, 7), row("attention forward", 6, 10, 10)]
        fast, likely, slow = estimate.total_of(rows)
        self.assertEqual((fast, likely, slow), (20 - 5, 20, 20 + 6))

    def test_rates(self):
        for arch in rates.RATES:
            fast, likely, slow = (rates.of(arch, case) for case in rates.CASES)
            self.assertGreater(fast["sustained"], slow["sustained"])
            self.assertEqual(len(likely["tiles"]), 3)


if __name__ == "__main__":
    unittest.main()
