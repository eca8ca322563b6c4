"""Tests what `estimate` reads out of instructions and of a profile program, on pieces small enough to count by hand."""
import importlib.machinery
import importlib.util
import os
import sys
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
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


if __name__ == "__main__":
    unittest.main()
