autocmd BufRead,BufNewFile *.pdm setfiletype pdm
