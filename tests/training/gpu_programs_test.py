"""Counts of a small program, in the words in which XLA prints one for a GPU."""

import math

import pytest

from realm_jax.training.machines.gpu_programs import count

# ruff: noqa: E501
PROGRAM = """HloModule jit_step, is_scheduled=true

%product (a: bf16[64,128], b: bf16[128,256]) -> f32[64,256] {
  %a = bf16[64,128]{1,0} parameter(0)
  %b = bf16[128,256]{1,0} parameter(1)
  %dot.1 = bf16[64,256]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %wide = f32[64,256]{1,0} convert(%dot.1), metadata={op_name="jit(step)/dot(general)"}
}

%look_up (table.1: f32[1000,128], ids.1: s32[3,64], i.1: s32[]) -> bf16[64,128] {
  %table.1 = f32[1000,128]{1,0} parameter(0)
  %ids.1 = s32[3,64]{1,0} parameter(1)
  %i.1 = s32[] parameter(2)
  %zero = s32[] constant(0)
  %slice = s32[1,64]{1,0} dynamic-slice(%ids.1, %i.1, %zero), dynamic_slice_sizes={1,64}
  %own = s32[64,1]{1,0} bitcast(%slice)
  %rows = f32[64,128]{1,0} gather(%table.1, %own), offset_dims={1}, slice_sizes={1,128}
  ROOT %narrow = bf16[64,128]{1,0} convert(%rows)
}

%add_rows (sums: f32[1000,128], own.1: s32[64,1], new: f32[64,128]) -> f32[1000,128] {
  %sums = f32[1000,128]{1,0} parameter(0)
  %own.1 = s32[64,1]{1,0} parameter(1)
  %new = f32[64,128]{1,0} parameter(2)
  ROOT %scatter = f32[1000,128]{1,0} scatter(%sums, %own.1, %new), to_apply=%add
}

%rounded_rows (wide.1: f32[1000,128]) -> bf16[8,128] {
  %wide.1 = f32[1000,128]{1,0} parameter(0)
  %rounded = bf16[1000,128]{1,0} convert(%wide.1)
  %few = bf16[8,128]{1,0} slice(%rounded), slice={[0:8], [0:128]}
  ROOT %twice = bf16[8,128]{1,0} add(%few, %few)
}

%short (pair: (bf16[64,128], bf16[128,256])) -> f32[64,256] {
  %pair = (bf16[64,128]{1,0}, bf16[128,256]{1,0}) parameter(0)
  %zeros = f32[] constant(0)
  ROOT %filled = f32[64,256]{1,0} broadcast(%zeros), dimensions={}
}

%long (pair.1: (bf16[64,128], bf16[128,256])) -> f32[64,256] {
  %pair.1 = (bf16[64,128]{1,0}, bf16[128,256]{1,0}) parameter(0)
  %x = bf16[64,128]{1,0} get-tuple-element(%pair.1), index=0
  %y = bf16[128,256]{1,0} get-tuple-element(%pair.1), index=1
  ROOT %gemm = f32[64,256]{1,0} fusion(%x, %y), kind=kCustom, calls=%product
}

%body (state: (s32[], f32[1000,128], s32[3,64], bf16[128,256])) -> (s32[], f32[64,256]) {
  %state = (s32[], f32[1000,128]{1,0}, s32[3,64]{1,0}, bf16[128,256]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %table = f32[1000,128]{1,0} get-tuple-element(%state), index=1
  %ids = s32[3,64]{1,0} get-tuple-element(%state), index=2
  %kernel = bf16[128,256]{1,0} get-tuple-element(%state), index=3
  %start = ((f32[1000,128]{1,0}, s32[3,64]{1,0}), bf16[64,128]{1,0}, u32[]) fusion-start(%table, %ids, %i), kind=kLoop, calls=%look_up
  %found = bf16[64,128]{1,0} fusion-done(%start)
  %both = (bf16[64,128]{1,0}, bf16[128,256]{1,0}) tuple(%found, %kernel)
  %chosen = f32[64,256]{1,0} conditional(%i, %both, %both), branch_computations={%short, %long}
  ROOT %next = (s32[], f32[64,256]{1,0}) tuple(%i, %chosen)
}

ENTRY %main (table.2: f32[1000,128], ids.2: s32[3,64], q: bf16[2,32,4,8]) -> f32[1000,128] {
  %table.2 = f32[1000,128]{1,0} parameter(0)
  %ids.2 = s32[3,64]{1,0} parameter(1)
  %q = bf16[2,32,4,8]{3,2,1,0} parameter(2)
  %loop = (s32[], f32[64,256]{1,0}) while(%table.2), condition=%ends, body=%body, backend_config={"known_trip_count":{"n":"3"},"known_init_step":{"init":"0","step":"1"}}
  %lines = f32[64,256]{1,0} get-tuple-element(%loop), index=1
  %weights = f32[256,128]{1,0} constant({...})
  %copied = f32[3,5]{1,0} constant({...})
  %copying = (f32[3,5]{1,0}, f32[3,5]{1,0}, u32[]) copy-start(%copied)
  %copy = f32[3,5]{1,0} copy-done(%copying)
  %blas = (f32[64,128]{1,0}, s8[4194304]{0}) custom-call(%lines, %weights), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %new.1 = f32[64,128]{1,0} get-tuple-element(%blas), index=0
  %attention = (bf16[2,32,4,8]{3,2,1,0}, u8[0]{0}) custom-call(%q, %q, %q), custom_call_target="__cudnn$fmhaSoftmax"
  %few.1 = bf16[8,128]{1,0} fusion(%table.2), kind=kLoop, calls=%rounded_rows
  %own.2 = s32[64,1]{1,0} constant({...})
  ROOT %sum = f32[1000,128]{1,0} fusion(%table.2, %own.2, %new.1), kind=kInput, calls=%add_rows
}
"""
PRODUCT = 2 * 64 * 128 * 256
ATTENTION = 2 * 2 * (2 * 4 * 32 * 32 * 8)
# Of a table only the rows, of a library's results not the memory that it works in.
LOOK_UP = 64 * 128 * 4 + 64 * 4 + 4 + 64 * 128 * 2
GEMM = 64 * 128 * 2 + 128 * 256 * 2 + 64 * 256 * 4
BLAS = 64 * 256 * 4 + 256 * 128 * 4 + 64 * 128 * 4
ROUNDED = 8 * 128 * (4 + 2)
CUDNN = 2 * math.prod((2, 32, 4, 8)) * 2
SCATTER = 3 * 64 * 128 * 4 + 64 * 4
COPY = 2 * 3 * 5 * 4
ONCE = BLAS + COPY + CUDNN + ROUNDED + SCATTER


def test_loops_count_as_often_as_they_run_and_of_branches_the_last():
  found = count(PROGRAM)
  assert found.flops == 3 * PRODUCT + PRODUCT + ATTENTION
  assert found.kernels == 3 * 2 + 5
  assert found.bytes_accessed == 3 * (LOOK_UP + GEMM) + ONCE


def test_another_branch_may_be_counted():
  found = count(PROGRAM, branch=0)
  assert found.flops == PRODUCT + ATTENTION
  assert found.bytes_accessed == 3 * (LOOK_UP + 64 * 256 * 4 + 4) + ONCE


def test_another_text_is_refused():
  with pytest.raises(ValueError, match="no text of a compiled program"):
    count("HloModule jit_step")
