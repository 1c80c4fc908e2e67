/**
 * The program with two faults built in, for the test that looks at what becomes of others: a check
 * of a request for the verb `throws` throws, and one for `rejects` leaves a rejection that nobody
 * handles.
 *
 * @module
 */
const get = Map.prototype.get;
Map.prototype.get = function (key: unknown): unknown {
  if ((key === "throws" || key === "rejects") && new Error().stack?.includes("/src/gates/")) {
    if (key === "throws") throw new Error("a fault that is built in");
    Promise.reject(new Error("nobody handles this"));
  }
  return get.call(this, key);
};

await import("../../main.ts");
