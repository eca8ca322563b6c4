// Starts `pdc lsp` for .pdm files.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("pdm").get("pdc");
  client = new LanguageClient("pdm", "pdc", { command, args: ["lsp"] }, { documentSelector: [{ language: "pdm" }] });
  return client.start();
};

exports.deactivate = () => client && client.stop();
