" Models for pdc (https://neovim.io: lua vim.lsp.start{name = 'pdc', cmd = {'pdc', 'lsp'}} brings the language server).
if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1
setlocal commentstring=#\ %s comments=:# shiftwidth=2 softtabstop=2 expandtab textwidth=115
setlocal formatprg=pdc\ fmt\ - makeprg=pdc\ -fsyntax-only\ %:S errorformat=%f:%l:%c:\ %trror:\ %m,%f:%l:%c:\ %tarning:\ %m,%-G%.%#
let b:undo_ftplugin = 'setlocal commentstring< comments< shiftwidth< softtabstop< expandtab< textwidth< formatprg< makeprg< errorformat<'
