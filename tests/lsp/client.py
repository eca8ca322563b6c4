"""A session by pygls' client:  client.py PDC

Typing, hover, definition, completion, rename and formatting, each answer in the protocol's own types."""
import asyncio
import pathlib
import sys
import tempfile

from lsprotocol import types
from pygls.lsp.client import LanguageClient

PDC = sys.argv[1]
TOP = pathlib.Path(__file__).resolve().parents[2]


async def main():
    client = LanguageClient("tests", "1")
    told = asyncio.Queue()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params):
        told.put_nowait(params)

    await client.start_io(PDC, "lsp")
    answer = await client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
    assert answer.server_info.name == "pdc" and answer.capabilities.hover_provider
    client.initialized(types.InitializedParams())

    text = (TOP / "models/gpt_mini.pdm").read_text()
    path = pathlib.Path(tempfile.mkdtemp()) / "a model.pdm"
    path.write_text(text)
    document = types.TextDocumentIdentifier(uri=path.as_uri())
    client.text_document_did_open(types.DidOpenTextDocumentParams(
        types.TextDocumentItem(uri=path.as_uri(), language_id="pdm", version=1, text=text)))
    first = await asyncio.wait_for(told.get(), 60)
    assert first.uri == path.as_uri() and not first.diagnostics, first

    def place(word):
        before = text[:text.index(word)]
        return types.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)

    def change(new, version):
        client.text_document_did_change(types.DidChangeTextDocumentParams(
            types.VersionedTextDocumentIdentifier(uri=path.as_uri(), version=version),
            [types.TextDocumentContentChangeWholeDocument(text=new)]))

    for version in range(2, 40):  # a word being typed
        change(text.replace("layer_norm(x)", "layer_norm"[:version % 11] + "(x)"), version)
    change(text.replace("layer_norm(x)", "layer_nrom(x)"), 40)
    while True:
        last = await asyncio.wait_for(told.get(), 60)
        if any("layer_nrom" in d.message for d in last.diagnostics):
            break
    diagnostic = last.diagnostics[0]
    assert diagnostic.code == "PD0102" and "layer_norm" in diagnostic.message, diagnostic
    assert diagnostic.range.start == place("layer_norm(x)"), diagnostic.range
    change(text, 41)

    hover = await client.text_document_hover_async(types.HoverParams(document, place("transformer_block")))
    assert "GPT2Block" in hover.contents.value and "789760 parameters" in hover.contents.value, hover
    definition = await client.text_document_definition_async(types.DefinitionParams(document, place("transformer_block")))
    assert definition.uri == (TOP / "stdlib_layers/transformer.pdm").as_uri(), definition
    target = (TOP / "stdlib_layers/transformer.pdm").read_text().splitlines()[definition.range.start.line]
    assert target.startswith("layer transformer_block("), target
    completion = await client.text_document_completion_async(types.CompletionParams(document, place("causal = true")))
    labels = {item.label for item in completion}
    assert {"init_proj = ", "dropout", "gelu", "x"} <= labels and "causal = " in labels, labels
    rename = await client.text_document_rename_async(types.RenameParams(document, place("n_embd = 256"), "width"))
    edits = rename.changes[path.as_uri()]
    lines = text.splitlines()
    assert len(edits) == text.count("n_embd") == 3, edits
    assert all(lines[e.range.start.line][e.range.start.character:e.range.end.character] == "n_embd" for e in edits), edits
    change(text.replace("  x = ln_f", "      x =   ln_f"), 42)
    edits = await client.text_document_formatting_async(
        types.DocumentFormattingParams(document, types.FormattingOptions(tab_size=2, insert_spaces=True)))
    assert len(edits) == 1 and edits[0].new_text == text, edits
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()


asyncio.run(main())
