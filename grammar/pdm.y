/* Syntax of the .pdm language. Actions only build Ast nodes. */
%define api.pure full
%define api.prefix {pdm_}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%param {void *scanner}
%parse-param {Parse *p}

%code requires {
#include "syntax/parse.h"
}
%code provides {
/* The names under which the scanner knows these types. */
#define YYSTYPE PDM_STYPE
#define YYLTYPE PDM_LTYPE
}

%union {
  Ast *ast;
  AstList list;
  Name name;
  double number;
}

%code {
#include "pdm.lex.h"

#define YYLLOC_DEFAULT(whole, part, n)                                                              \
  ((whole) = (n) ? span_join(YYRHSLOC(part, 1), YYRHSLOC(part, n))                                  \
                 : (Span){YYRHSLOC(part, 0).file, YYRHSLOC(part, 0).end_line,                       \
                          YYRHSLOC(part, 0).end_column, YYRHSLOC(part, 0).end_line,                 \
                          YYRHSLOC(part, 0).end_column})

int pdm_scan(YYSTYPE *value, YYLTYPE *where, void *scanner);
static void pdm_error(YYLTYPE *where, void *scanner, Parse *p, const char *message);

static AstList list_of(Ast *first) {
  AstList l = {0};
  if (first) push(&l, first);
  return l;
}
static AstList list_add(AstList l, Ast *next) {
  if (next) push(&l, next);
  return l;
}
}

%token START_FILE START_DEFINE
%token END 0 "the end of the file"
%token <name> USE "'use'" LAYER "'layer'" MODEL "'model'" TRAIN "'train'" CLUSTER "'cluster'"
%token <name> INPUT "'input'" TARGET "'target'" METRIC "'metric'" OUTPUT "'output'" BUFFER "'buffer'"
%token PARAM "'param'" LOSS "'loss'" RETURN "'return'"
%token IF "'if'" ELSE "'else'" FOR "'for'" IN "'in'" DOTDOT "'..'"
%token <number> TRUE "'true'" FALSE "'false'"
%token <name> NAME "a name"
%token <ast> NUMBER "a number" QUANTITY "a quantity" WORD "a word" STRING "a string"
%token <name> AND "'and'" OR "'or'" NOT "'not'" EQ "'=='" NE "'!='" LE "'<='" GE "'>='" IDIV "'//'"
%token <name> '+' '-' '*' '/' '%' '@' '<' '>'

%left OR
%left AND
%precedence NOT
%nonassoc EQ NE '<' LE '>' GE
%left '+' '-'
%left '*' '/' '%' '@' IDIV
%precedence NEGATE

%type <ast> item formal statement block else expression postfix labelled argument subscript range
%type <ast> initial option kind setting group
%type <name> identifier
%type <list> items formals formal_list statements expressions arguments argument_list subscripts
%type <list> dims settings training groups

%%

start:
    START_FILE items END                  { p->result = ast_new(AST_FILE, @2); p->result->list = $2; }
  | START_DEFINE NAME '=' expression END
      { Ast *n = parse_item(AST_SETTING, @2, $2, @2, list_of(NULL), $4); p->result = n; }
  | START_DEFINE NAME '=' STRING NAME STRING END
      { Ast *a = parse_item(AST_FREEZE, span_join(@4, @6), $2, @4, list_of(NULL), $4);
        a->text = $5; a->b = $6; p->result = parse_item(AST_SETTING, @2, $2, @2, list_of(NULL), a); }
  | START_DEFINE identifier '.' identifier '=' expression END
      { Ast *n = parse_item(AST_SETTING, @2, $4, span_join(@2, @4), list_of(NULL), $6); n->text = $2; p->result = n; }
  ;

items:
    %empty         { $$ = list_of(NULL); }
  | items item     { $$ = list_add($1, $2); }
  | items error ';'    { yyerrok; }
  | items error '}'    { yyerrok; }
  | items error block  { yyerrok; }
  | items error item   { yyerrok; $$ = list_add($1, $3); }
  ;

item:
    USE NAME ';'                            { $$ = parse_item(AST_USE, @$, $2, @2, list_of(NULL), NULL); }
  | LAYER NAME '(' formals ')' block        { $$ = parse_item(AST_LAYER, span_join(@1, @5), $2, @2, $4, $6); }
  | MODEL NAME block
      { $$ = parse_item(AST_MODEL, span_join(@1, @2), $2, @2, list_of(NULL), $3); }
  | MODEL NAME '(' formals ')' block        { $$ = parse_item(AST_MODEL, span_join(@1, @5), $2, @2, $4, $6); }
  | TRAIN NAME '{' training '}'
      { $$ = parse_item(AST_TRAIN, span_join(@1, @2), $2, @2, $4, NULL); }
  | CLUSTER NAME '{' groups '}'
      { $$ = parse_item(AST_CLUSTER, span_join(@1, @2), $2, @2, $4, NULL); }
  ;

formals:
    %empty         { $$ = list_of(NULL); }
  | formal_list
  ;

formal_list:
    formal                      { $$ = list_of($1); }
  | formal_list ',' formal      { $$ = list_add($1, $3); }
  ;

formal:
    identifier                  { $$ = parse_declaration(AST_FORMAL, @1, $1, @1, list_of(NULL), NULL, @1); }
  | identifier dims
      { $$ = parse_declaration(AST_FORMAL, @1, $1, @1, $2, NULL, @2); $$->dims = true; }
  | identifier '=' expression   { $$ = parse_declaration(AST_FORMAL, @1, $1, @1, list_of(NULL), $3, @3); }
  ;

dims:
    '[' subscripts ']'          { $$ = $2; }
  | '[' ']'                     { $$ = list_of(NULL); }
  ;

settings:
    %empty                      { $$ = list_of(NULL); }
  | settings setting            { $$ = list_add($1, $2); }
  | settings error ';'          { yyerrok; }
  ;

setting:
    NAME '=' expression ';'
      { $$ = parse_item(AST_SETTING, span_join(@1, @3), $1, @1, list_of(NULL), $3); }
  ;

training:
    %empty                      { $$ = list_of(NULL); }
  | training setting            { $$ = list_add($1, $2); }
  | training NAME STRING ';'
      { $$ = list_add($1, parse_item(AST_FREEZE, span_join(@2, @3), $2, @2, list_of(NULL), $3)); }
  | training NAME STRING NAME STRING ';'
      { Ast *n = parse_item(AST_FREEZE, span_join(@2, @5), $2, @2, list_of(NULL), $3);
        n->text = $4; n->b = $5; $$ = list_add($1, n); }
  | training NAME STRING '{' settings '}'
      { $$ = list_add($1, parse_item(AST_GROUP, span_join(@2, @3), $2, @2, $5, $3)); }
  | training error ';'          { yyerrok; }
  ;

groups:
    %empty                      { $$ = list_of(NULL); }
  | groups setting              { $$ = list_add($1, $2); }
  | groups group                { $$ = list_add($1, $2); }
  | groups error ';'            { yyerrok; }
  ;

group:
    NAME '{' settings '}'       { $$ = parse_item(AST_GROUP, @1, $1, @1, $3, NULL); }
  | NAME NAME '{' settings '}'
      { $$ = parse_item(AST_GROUP, span_join(@1, @2), $1, @1, $4, NULL); $$->text = $2; }
  ;

block:
    '{' statements '}'          { $$ = ast_new(AST_BLOCK, @$); $$->list = $2; }
  | '{' statements error '}'    { $$ = ast_new(AST_BLOCK, @$); $$->list = $2; }
  ;

statements:
    %empty                      { $$ = list_of(NULL); }
  | statements statement        { $$ = list_add($1, $2); }
  ;

statement:
    expressions '=' expression ';'     { $$ = parse_assign(p, $1, $3); }
  | expressions '=' expression block   { $$ = parse_scan(p, parse_assign(p, $1, $3), $4); }
  | expression ';'                     { $$ = ast_new(AST_EXPRESSION, @1); $$->a = $1; }
  | PARAM NAME initial option ';'
      { $$ = parse_declaration(AST_PARAM, @1, $2, @2, list_of(NULL), $3, @3); $$->b = $4; }
  | PARAM NAME dims initial option ';'
      { $$ = parse_declaration(AST_PARAM, @1, $2, @2, $3, $4, @4); $$->b = $5; }
  | BUFFER NAME initial ';'
      { $$ = parse_declaration(AST_BUFFER, @1, $2, @2, list_of(NULL), $3, @3); }
  | BUFFER NAME dims initial ';'       { $$ = parse_declaration(AST_BUFFER, @1, $2, @2, $3, $4, @4); }
  | INPUT NAME dims kind ';'           { $$ = parse_declaration(AST_INPUT, @1, $2, @2, $3, $4, @4); }
  | TARGET NAME dims kind ';'          { $$ = parse_declaration(AST_TARGET, @1, $2, @2, $3, $4, @4); }
  | LOSS expression ';'
      { $$ = ast_new(AST_LOSS, span_join(@1, @2)); $$->a = $2; $$->span2 = @1; }
  | METRIC NAME '=' expression option ';'
      { $$ = parse_declaration(AST_METRIC, @1, $2, @2, list_of(NULL), $4, @4); $$->b = $5; }
  | METRIC NAME '[' expressions ']' '=' expression option ';'
      { $$ = parse_declaration(AST_METRIC, @1, $2, @2, $4, $7, @7); $$->b = $8; }
  | OUTPUT NAME ';'                    { $$ = parse_declaration(AST_OUTPUT, @1, $2, @2, list_of(NULL), NULL, @2); }
  | OUTPUT NAME '=' expression ';'
      { $$ = parse_declaration(AST_OUTPUT, @1, $2, @2, list_of(NULL), $4, @4); }
  | OUTPUT NAME '[' expressions ']' '=' expression ';'
      { $$ = parse_declaration(AST_OUTPUT, @1, $2, @2, $4, $7, @7); }
  | RETURN expressions ';'
      { $$ = ast_new(AST_RETURN, span_join(@1, @2)); $$->list = $2; $$->span2 = @1; }
  | IF expression block else
      { $$ = ast_new(AST_IF, span_join(@1, @2)); $$->a = $2; $$->b = $3; $$->c = $4; }
  | FOR NAME IN range block
      { $$ = ast_new(AST_FOR, span_join(@1, @4)); $$->name = $2; $$->span2 = @2; $$->a = $4; $$->b = $5; }
  | LOSS '=' expression ';'
      { parse_reserved(p, @1, "loss", "write 'loss EXPRESSION;' to state the loss"); $$ = NULL; }
  | METRIC NAME '(' arguments ')' ';'
      { parse_unnamed_metric(p, span_join(@2, @5), $2); $$ = NULL; }
  | error ';'                          { yyerrok; $$ = NULL; }
  | error block                        { yyerrok; $$ = NULL; }
  ;

initial:
    %empty                      { $$ = NULL; }
  | '=' expression              { $$ = $2; }
  ;

option:
    %empty                      { $$ = NULL; }
  | ',' NAME '=' expression     { $$ = ast_new(AST_ARGUMENT, @$); $$->name = $2; $$->span2 = @2; $$->a = $4; }
  ;

kind:
    %empty                      { $$ = NULL; }
  | ':' expression              { $$ = $2; }
  ;

else:
    %empty                      { $$ = NULL; }
  | ELSE block                  { $$ = $2; }
  | ELSE IF expression block else
      { $$ = ast_new(AST_IF, span_join(@2, @3)); $$->a = $3; $$->b = $4; $$->c = $5; }
  ;

range:
    expression
  | expression DOTDOT expression  { $$ = ast_new(AST_RANGE, @$); $$->a = $1; $$->b = $3; }
  ;

expressions:
    expression                  { $$ = list_of($1); }
  | expressions ',' expression  { $$ = list_add($1, $3); }
  ;

expression:
    labelled
  | expression OR expression    { $$ = parse_binary($1, $2, @2, $3); }
  | expression AND expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression EQ expression    { $$ = parse_binary($1, $2, @2, $3); }
  | expression NE expression    { $$ = parse_binary($1, $2, @2, $3); }
  | expression '<' expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression LE expression    { $$ = parse_binary($1, $2, @2, $3); }
  | expression '>' expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression GE expression    { $$ = parse_binary($1, $2, @2, $3); }
  | expression '+' expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression '-' expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression '*' expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression '/' expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression '%' expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression '@' expression   { $$ = parse_binary($1, $2, @2, $3); }
  | expression IDIV expression  { $$ = parse_binary($1, $2, @2, $3); }
  | NOT expression              { $$ = parse_unary($1, @1, $2); }
  | '-' expression %prec NEGATE { $$ = parse_unary($1, @1, $2); }
  ;

labelled:
    postfix
  | postfix ':' postfix         { $$ = parse_label(p, $1, $3); }
  ;

/* Words that mean something only where a statement or an item starts. */
identifier:
    NAME | USE | LAYER | MODEL | TRAIN | CLUSTER | INPUT | TARGET | METRIC | OUTPUT | BUFFER
  ;

postfix:
    identifier                  { $$ = ast_new(AST_NAME, @1); $$->name = $1; }
  | NUMBER
  | QUANTITY
  | WORD
  | STRING
  | TRUE                        { $$ = ast_new(AST_BOOL, @1); $$->number = $1; }
  | FALSE                       { $$ = ast_new(AST_BOOL, @1); $$->number = $1; }
  | '(' expression ')'          { $$ = $2; $$->span = @$; }
  | '(' expression ',' expressions ')' { $$ = ast_new(AST_TUPLE, @$); push(&$$->list, $2);
                                         for (int i = 0; i < $4.n; i++) push(&$$->list, $4.at[i]); }
  | '[' ']'                     { $$ = ast_new(AST_LIST, @$); }
  | '[' expressions ']'         { $$ = ast_new(AST_LIST, @$); $$->list = $2; }
  | postfix '(' arguments ')'   { $$ = parse_call(p, $1, $3, @4); }
  | postfix '[' subscripts ']'  { $$ = ast_new(AST_INDEX, @$); $$->a = $1; $$->list = $3; }
  | postfix '.' identifier      { $$ = ast_new(AST_MEMBER, @$); $$->a = $1; $$->name = $3; $$->span2 = @3; }
  ;

arguments:
    %empty                      { $$ = list_of(NULL); }
  | argument_list
  ;

argument_list:
    argument                    { $$ = list_of($1); }
  | argument_list ',' argument  { $$ = list_add($1, $3); }
  ;

argument:
    expression                  { $$ = ast_new(AST_ARGUMENT, @$); $$->a = $1; }
  | identifier '=' expression   { $$ = ast_new(AST_ARGUMENT, @$); $$->name = $1; $$->span2 = @1; $$->a = $3; }
  | identifier IN expression
      { $$ = ast_new(AST_ARGUMENT, @$); $$->name = $1; $$->span2 = @1; $$->text = "in"; $$->a = $3; }
  ;

subscripts:
    subscript                   { $$ = list_of($1); }
  | subscripts ',' subscript    { $$ = list_add($1, $3); }
  ;

subscript:
    expression
  | expression DOTDOT expression { $$ = ast_new(AST_RANGE, @$); $$->a = $1; $$->b = $3; }
  | expression DOTDOT            { $$ = ast_new(AST_RANGE, @$); $$->a = $1; }
  | DOTDOT expression            { $$ = ast_new(AST_RANGE, @$); $$->b = $2; }
  | DOTDOT                       { $$ = ast_new(AST_RANGE, @$); }
  ;

%%

/* The first token says whether a file or a definition follows. */
int pdm_lex(YYSTYPE *value, YYLTYPE *where, void *scanner) {
  Parse *p = pdm_get_extra(scanner);
  if (p->given_up) {
    *where = p->now;
    return END;
  }
  if (p->started) {
    int kind = pdm_scan(value, where, scanner);
    parse_note(p, kind);
    return kind;
  }
  p->started = true;
  *where = p->now;
  return p->define ? START_DEFINE : START_FILE;
}

static int yyreport_syntax_error(const yypcontext_t *context, void *scanner, Parse *p) {
  enum { MOST = 64 };
  (void)scanner;
  yysymbol_kind_t kinds[MOST];
  const char *expected[MOST];
  int n = yypcontext_expected_tokens(context, kinds, MOST);
  for (int i = 0; i < n; i++) expected[i] = yysymbol_name(kinds[i]);
  parse_unexpected(p, expected, n);
  return 0;
}

static void pdm_error(YYLTYPE *where, void *scanner, Parse *p, const char *message) {
  (void)scanner;
  (void)message; /* "memory exhausted": all else goes to yyreport_syntax_error */
  if (parse_erred(p)) error_at(*where, "PD0010", "this is nested too deeply");
}
