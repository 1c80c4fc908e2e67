/** What the documentation points to is there: pages, headings, files, tests and tasks. */
import { assert, assertEquals } from "@std/assert";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { there } from "./helpers/bridge.ts";

/** Every page, relative to the repository. */
const PAGES = [
  ...["README.md", "CHANGELOG.md", "VERSIONING.md"],
  ...["agent/AGENTS.md", "agent/mcp/README.md", "policies/README.md", "SECURITY.md"],
  ...[...Deno.readDirSync(inRepository("docs"))].map(({ name }) => name)
    .filter((name) => name.endsWith(".md")).map((name) => `docs/${name}`),
];

function read(page: string): string {
  return Deno.readTextFileSync(inRepository(page));
}

/** A page without its code blocks, where brackets are no links. */
function prose(page: string): string {
  return read(page).replace(/^```[\s\S]*?^```/gm, "");
}

/** Heading to what a link to it says. */
function anchors(page: string): string[] {
  return [...prose(page).matchAll(/^#+ (.*)$/gm)].map(([, text = ""]) =>
    text.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-")
  );
}

Deno.test("every link of the documentation leads to a page, and to a heading of it", () => {
  const broken: string[] = [];
  let links = 0;
  for (const page of PAGES) {
    for (const [, target = ""] of prose(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      links++;
      const [path = "", anchor] = target.split("#");
      const file = path === "" ? page : join(dirname(page), path);
      if (!there(inRepository(file))) broken.push(`${page}: ${target}`);
      else if (anchor !== undefined && !anchors(file).includes(anchor)) {
        broken.push(`${page}: no heading for ${target}`);
      }
    }
  }
  assertEquals(broken, []);
  assert(links > 30, `only ${links} links were found`);
});

Deno.test("every file, test and task that the documentation names exists", () => {
  const broken: string[] = [];
  const tasks = Object.keys(JSON.parse(read("deno.json")).tasks);
  let named = 0;
  for (const page of PAGES) {
    const text = prose(page);
    for (const [, path = ""] of text.matchAll(/`((?:src|tests|tools|agent)\/[\w./-]*)`/g)) {
      named++;
      if (!there(inRepository(path))) broken.push(`${page}: ${path}`);
    }
    for (const [, name = ""] of text.matchAll(/`([a-z_0-9]+_test\.ts)`/g)) {
      named++;
      if (!there(inRepository("tests", name))) broken.push(`${page}: ${name}`);
    }
    for (const [, task = ""] of text.matchAll(/`(?:npx -y \S+|deno) task ([a-z-]+)/g)) {
      if (page === "agent/mcp/README.md") continue;
      named++;
      if (!tasks.includes(task)) broken.push(`${page}: deno task ${task}`);
    }
  }
  assertEquals(broken, []);
  assert(named > 30, `only ${named} names were found`);
});

Deno.test("every page is in the index", () => {
  const index = read("docs/README.md");
  for (const page of PAGES) {
    const name = page.replace("docs/", "");
    if (!page.startsWith("docs/") || name === "README.md") continue;
    assert(index.includes(`](${name})`), `docs/README.md does not name ${name}`);
  }
});
