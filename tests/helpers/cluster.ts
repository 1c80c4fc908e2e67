/**
 * What answers kubectl as a cluster would, as far as the policy's verbs ask: discovery, one kind of
 * object that can be made, changed and deleted, a pod, and its log. On a free port of the loopback.
 *
 * @module
 */
import { join } from "@std/path/join";

type Fields = Record<string, unknown>;

const VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"];

function resource(name: string, kind: string): Fields {
  return { name, singularName: kind.toLowerCase(), namespaced: true, kind, verbs: VERBS };
}

/** Groups of the interface, by path. */
const GROUPS: Readonly<Record<string, readonly Fields[]>> = {
  "/api/v1": [
    resource("pods", "Pod"),
    resource("pods/log", "Pod"),
    resource("serviceaccounts", "ServiceAccount"),
  ],
  "/apis/apps/v1": [resource("deployments", "Deployment"), resource("replicasets", "ReplicaSet")],
  "/apis/rbac.authorization.k8s.io/v1": [
    resource("roles", "Role"),
    resource("rolebindings", "RoleBinding"),
  ],
};

const NOT_FOUND = {
  kind: "Status",
  apiVersion: "v1",
  status: "Failure",
  reason: "NotFound",
  code: 404,
};

export class Cluster implements AsyncDisposable {
  /** The file that tells kubectl where this is. */
  readonly kubeconfig: string;
  readonly #directory = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-cluster-" }));
  readonly #objects = new Map<string, Fields>();
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  constructor(readonly namespace: string) {
    this.#server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      (request) => this.#answer(request),
    );
    this.kubeconfig = join(this.#directory, "kubeconfig");
    const server = `http://127.0.0.1:${this.#server.addr.port}`;
    Deno.writeTextFileSync(
      this.kubeconfig,
      JSON.stringify({
        apiVersion: "v1",
        kind: "Config",
        "current-context": "c",
        contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
        clusters: [{ name: "c", cluster: { server } }],
        users: [{ name: "u", user: { token: "of-a-test" } }],
      }),
      { mode: 0o600 },
    );
  }

  /** `kind/name` of what has been made and not deleted. */
  objects(): string[] {
    return [...this.#objects.keys()].sort();
  }

  async #answer(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    const group = GROUPS[pathname];
    if (group !== undefined) {
      const groupVersion = pathname.replace(/^\/apis?\//, "");
      return Response.json({
        kind: "APIResourceList",
        apiVersion: "v1",
        groupVersion,
        resources: group,
      });
    }
    if (pathname === "/api") {
      return Response.json({ kind: "APIVersions", apiVersion: "v1", versions: ["v1"] });
    }
    if (pathname === "/apis") {
      const groups = ["apps", "rbac.authorization.k8s.io"].map((name) => {
        const version = { groupVersion: `${name}/v1`, version: "v1" };
        return { name, versions: [version], preferredVersion: version };
      });
      return Response.json({ kind: "APIGroupList", apiVersion: "v1", groups });
    }
    if (pathname === "/openapi/v2") {
      // A document without a definition, in the encoding that kubectl asks for.
      return new Response(new Uint8Array([0x0a, 3, 0x32, 0x2e, 0x30]), {
        headers: { "content-type": "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" },
      });
    }
    const found = new RegExp(`/namespaces/${this.namespace}/(.*)$`).exec(pathname)?.[1];
    return found === undefined
      ? Response.json(NOT_FOUND, { status: 404 })
      : await this.#object(found, request);
  }

  async #object(key: string, request: Request): Promise<Response> {
    const now = this.#objects.get(key);
    if (key === "pods") {
      const table = request.headers.get("accept")?.includes("as=Table") === true;
      return Response.json(
        table ? this.#table() : {
          kind: "PodList",
          apiVersion: "v1",
          metadata: {},
          items: [this.#pod()],
        },
      );
    }
    if (key === "pods/web-1") return Response.json(this.#pod());
    if (key === "pods/web-1/log") return new Response("web is up\n");
    if (request.method === "POST") {
      const made = await request.json() as Fields & { metadata: Fields };
      const name = String(made.metadata["name"]);
      const replicas = 2;
      const status = {
        observedGeneration: 1,
        replicas,
        updatedReplicas: replicas,
        readyReplicas: replicas,
        availableReplicas: replicas,
      };
      const metadata = { ...made.metadata, generation: 1, uid: "1", resourceVersion: "1" };
      this.#objects.set(`${key}/${name}`, { ...made, metadata, status });
      return Response.json(this.#objects.get(`${key}/${name}`), { status: 201 });
    }
    if (key === "deployments") {
      const items = [...this.#objects.values()];
      return Response.json({
        kind: "DeploymentList",
        apiVersion: "apps/v1",
        metadata: { resourceVersion: "1" },
        items,
      });
    }
    if (now === undefined) return Response.json(NOT_FOUND, { status: 404 });
    if (request.method === "PATCH") await request.body?.cancel();
    if (request.method === "DELETE") {
      await request.body?.cancel();
      this.#objects.delete(key);
      return Response.json({ kind: "Status", apiVersion: "v1", status: "Success" });
    }
    return Response.json(now);
  }

  /** The list as a cluster prints it itself. */
  #table(): Fields {
    const column = (name: string) => ({
      name,
      type: "string",
      format: "",
      description: "",
      priority: 0,
    });
    return {
      kind: "Table",
      apiVersion: "meta.k8s.io/v1",
      metadata: {},
      columnDefinitions: [column("Name"), column("Status")],
      rows: [{ cells: ["web-1", "Running"], object: { ...this.#pod(), spec: undefined } }],
    };
  }

  #pod(): Fields {
    return {
      kind: "Pod",
      apiVersion: "v1",
      metadata: { name: "web-1", namespace: this.namespace, labels: { app: "web" } },
      spec: { containers: [{ name: "web", image: "busybox:1" }] },
      status: { phase: "Running" },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
    Deno.removeSync(this.#directory, { recursive: true });
  }
}
