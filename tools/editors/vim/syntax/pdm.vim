" Vim syntax of .pdm, models for pdc. The lists of words are tested against the grammar (tests/editors).
if exists('b:current_syntax')
  finish
endif

syn keyword pdmItem use layer model train cluster
syn keyword pdmStatement param buffer input target loss metric output return
syn keyword pdmConditional if else
syn keyword pdmRepeat for in
syn keyword pdmOperator and or not
syn keyword pdmBoolean true false
syn keyword pdmConstant none zeros ones pi in_out out_in

syn match pdmCall /\<\h\w*\ze\s*(/
syn match pdmLabel /\<\h[A-Za-z0-9_.]*\%(\[[^]]*\]\)\?\%(\.\h\w*\)*\ze\s*:/
syn match pdmNumber /\<\d\+\%(\.\d\+\)\?\%([eE][-+]\?\d\+\)\?\>/
syn match pdmNumber /\<\d\+\%(\.\d\+\)\?\%([eE][-+]\?\d\+\)\?\s*\%(B\|KB\|MB\|GB\|TB\|KiB\|MiB\|GiB\|TiB\|bit\|Kbit\|Mbit\|Gbit\|Tbit\|s\|ms\|us\|ns\|FLOPS\|MFLOPS\|GFLOPS\|TFLOPS\|PFLOPS\)\>\%(\/s\)\?/
syn match pdmWord /\<\d\+[A-Za-z]\+\w*\>/
syn region pdmString start=/"/ skip=/\\"\|\\\\/ end=/"/ oneline
syn match pdmComment /#.*/ contains=@Spell

hi def link pdmItem Structure
hi def link pdmStatement Statement
hi def link pdmConditional Conditional
hi def link pdmRepeat Repeat
hi def link pdmOperator Operator
hi def link pdmBoolean Boolean
hi def link pdmConstant Constant
hi def link pdmCall Function
hi def link pdmLabel Label
hi def link pdmNumber Number
hi def link pdmWord Constant
hi def link pdmString String
hi def link pdmComment Comment

let b:current_syntax = 'pdm'
