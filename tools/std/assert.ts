/**
 * Stands in for `@std/assert`: the assertions that the tests use. A failed one throws
 * `AssertionError`, as the original does; only the wording of messages differs.
 *
 * @module
 */

/** What a failed assertion throws. */
export class AssertionError extends Error {
  override name = "AssertionError";
}

/** A class whose instances are `E`, abstract ones and ones with any constructor included. */
// deno-lint-ignore no-explicit-any
type Class<E> = abstract new (...args: any[]) => E;

function note(msg: string | undefined): string {
  return msg === undefined ? "" : `: ${msg}`;
}

function show(value: unknown): string {
  return Deno.inspect(value, {
    depth: 12,
    sorted: true,
    iterableLimit: 200,
    strAbbreviateSize: 4000,
  });
}

/** Keys and symbols that equality looks at. */
function keysOf(value: object): PropertyKey[] {
  return Reflect.ownKeys(value).filter((key) =>
    Object.prototype.propertyIsEnumerable.call(value, key)
  );
}

/** True when the two are of one kind; an object without a prototype counts as a plain one. */
function sameClass(a: object, b: object): boolean {
  const classA = a.constructor ?? Object;
  const classB = b.constructor ?? Object;
  return classA === classB;
}

/** Structural equality; `seen` ends the comparison of structures that contain themselves. */
function equal(a: unknown, b: unknown, seen: Map<unknown, unknown>): boolean {
  if (Object.is(a, b) || a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (!sameClass(a, b)) return false;
  if (seen.get(a) === b) return true;
  seen.set(a, b);
  if (a instanceof Date && b instanceof Date) return Object.is(a.getTime(), b.getTime());
  if (a instanceof RegExp && b instanceof RegExp) return String(a) === String(b);
  if (a instanceof URL && b instanceof URL) return a.href === b.href;
  if (a instanceof Set && b instanceof Set) {
    if (a.size !== b.size) return false;
    return [...a].every((x) => b.has(x) || [...b].some((y) => equal(x, y, seen)));
  }
  if (a instanceof Map && b instanceof Map) {
    if (a.size !== b.size) return false;
    return [...a].every(([key, value]) =>
      b.has(key)
        ? equal(value, b.get(key), seen)
        : [...b].some(([k, v]) => equal(key, k, seen) && equal(value, v, seen))
    );
  }
  const keysA = keysOf(a);
  const keysB = new Set(keysOf(b));
  return keysA.length === keysB.size &&
    keysA.every((key) => keysB.has(key) && equal(Reflect.get(a, key), Reflect.get(b, key), seen));
}

/** Fails unless `expr` is truthy. */
export function assert(expr: unknown, msg = ""): asserts expr {
  if (!expr) throw new AssertionError(msg);
}

/** Fails unless `expr` is falsy. */
export function assertFalse(expr: unknown, msg?: string): asserts expr is false {
  if (expr) throw new AssertionError(`Expected a falsy value${note(msg)}`);
}

/** Fails unless the two are structurally equal. */
export function assertEquals<T>(actual: T, expected: T, msg?: string): void {
  if (equal(actual, expected, new Map())) return;
  throw new AssertionError(
    `Values are not equal${note(msg)}\nactual:   ${show(actual)}\nexpected: ${show(expected)}`,
  );
}

/** Fails when the two are structurally equal. */
export function assertNotEquals<T>(actual: T, expected: T, msg?: string): void {
  if (!equal(actual, expected, new Map())) return;
  throw new AssertionError(`Values are equal${note(msg)}\nboth: ${show(actual)}`);
}

/** Fails unless the two are the same value, as `Object.is` tells. */
export function assertStrictEquals<T>(
  actual: unknown,
  expected: T,
  msg?: string,
): asserts actual is T {
  if (Object.is(actual, expected)) return;
  throw new AssertionError(
    `Values are not the same${note(msg)}\nactual:   ${show(actual)}\nexpected: ${show(expected)}`,
  );
}

/** Fails when `actual` is null or undefined. */
export function assertExists<T>(actual: T, msg?: string): asserts actual is NonNullable<T> {
  if (actual === undefined || actual === null) {
    throw new AssertionError(`Expected a value, got ${actual}${note(msg)}`);
  }
}

/** Fails unless `actual` is an instance of `expectedType`. */
export function assertInstanceOf<T>(
  actual: unknown,
  expectedType: Class<T>,
  msg?: string,
): asserts actual is T {
  if (actual instanceof expectedType) return;
  throw new AssertionError(
    `Expected an instance of ${expectedType.name}, got ${show(actual)}${note(msg)}`,
  );
}

/** Fails unless `actual` contains `expected`. */
export function assertStringIncludes(actual: string, expected: string, msg?: string): void {
  if (actual.includes(expected)) return;
  throw new AssertionError(`Expected ${show(actual)} to contain ${show(expected)}${note(msg)}`);
}

/** Fails unless `expected` matches `actual`. */
export function assertMatch(actual: string, expected: RegExp, msg?: string): void {
  if (expected.test(actual)) return;
  throw new AssertionError(`Expected ${show(actual)} to match ${expected}${note(msg)}`);
}

/** Fails when `expected` matches `actual`. */
export function assertNotMatch(actual: string, expected: RegExp, msg?: string): void {
  if (!expected.test(actual)) return;
  throw new AssertionError(`Expected ${show(actual)} not to match ${expected}${note(msg)}`);
}

/** Fails unless every value of `expected` is somewhere in `actual`. */
export function assertArrayIncludes<T>(
  actual: ArrayLike<T>,
  expected: ArrayLike<T>,
  msg?: string,
): void {
  const missing = Array.from(expected).filter((want) =>
    !Array.from(actual).some((have) => equal(have, want, new Map()))
  );
  if (missing.length === 0) return;
  throw new AssertionError(`Expected ${show(actual)} to include ${show(missing)}${note(msg)}`);
}

/** Fails unless `actual` is above `expected`. */
export function assertGreater<T>(actual: T, expected: T, msg?: string): void {
  if (actual > expected) return;
  throw new AssertionError(`Expected ${show(actual)} > ${show(expected)}${note(msg)}`);
}

/** Fails unless `actual` is `expected` or above. */
export function assertGreaterOrEqual<T>(actual: T, expected: T, msg?: string): void {
  if (actual >= expected) return;
  throw new AssertionError(`Expected ${show(actual)} >= ${show(expected)}${note(msg)}`);
}

/** Fails unless `actual` is below `expected`. */
export function assertLess<T>(actual: T, expected: T, msg?: string): void {
  if (actual < expected) return;
  throw new AssertionError(`Expected ${show(actual)} < ${show(expected)}${note(msg)}`);
}

/** Fails unless `actual` is `expected` or below. */
export function assertLessOrEqual<T>(actual: T, expected: T, msg?: string): void {
  if (actual <= expected) return;
  throw new AssertionError(`Expected ${show(actual)} <= ${show(expected)}${note(msg)}`);
}

/** Fails unless `error` is an `E` whose message contains `includes`. */
function checkError<E>(error: unknown, errorClass?: Class<E>, includes?: string, msg?: string): E {
  if (!(error instanceof Error)) {
    throw new AssertionError(`Expected an Error to be thrown, got ${show(error)}${note(msg)}`);
  }
  if (errorClass !== undefined && !(error instanceof errorClass)) {
    throw new AssertionError(
      `Expected ${errorClass.name} to be thrown, got ${show(error)}${note(msg)}`,
    );
  }
  if (includes !== undefined && !error.message.includes(includes)) {
    throw new AssertionError(
      `Expected the message to contain ${show(includes)}, got ${show(error.message)}${note(msg)}`,
    );
  }
  return error as E;
}

/** Fails unless `fn` throws; returns what it threw. */
export function assertThrows(fn: () => unknown, msg?: string): unknown;
/** Fails unless `fn` throws an `errorClass` whose message contains `msgIncludes`; returns it. */
export function assertThrows<E extends Error = Error>(
  fn: () => unknown,
  errorClass: Class<E>,
  msgIncludes?: string,
  msg?: string,
): E;
export function assertThrows<E extends Error>(
  fn: () => unknown,
  classOrMsg?: Class<E> | string,
  msgIncludes?: string,
  msg?: string,
): unknown {
  const anything = typeof classOrMsg !== "function";
  const why = anything ? classOrMsg : msg;
  try {
    fn();
  } catch (error) {
    return anything ? error : checkError(error, classOrMsg, msgIncludes, why);
  }
  throw new AssertionError(`Expected the function to throw${note(why)}`);
}

/** Fails unless `fn` rejects; returns the reason. */
export function assertRejects(fn: () => PromiseLike<unknown>, msg?: string): Promise<unknown>;
/** Fails unless `fn` rejects with an `errorClass` whose message contains `msgIncludes`. */
export function assertRejects<E extends Error = Error>(
  fn: () => PromiseLike<unknown>,
  errorClass: Class<E>,
  msgIncludes?: string,
  msg?: string,
): Promise<E>;
export async function assertRejects<E extends Error>(
  fn: () => PromiseLike<unknown>,
  classOrMsg?: Class<E> | string,
  msgIncludes?: string,
  msg?: string,
): Promise<unknown> {
  const anything = typeof classOrMsg !== "function";
  const why = anything ? classOrMsg : msg;
  let promise: PromiseLike<unknown>;
  try {
    promise = fn();
  } catch (error) {
    throw new AssertionError(
      `Expected a rejection, but the function threw ${show(error)}${note(why)}`,
    );
  }
  try {
    await promise;
  } catch (error) {
    return anything ? error : checkError(error, classOrMsg, msgIncludes, why);
  }
  throw new AssertionError(`Expected the function to reject${note(why)}`);
}

/** Fails. */
export function fail(msg?: string): never {
  throw new AssertionError(`Failed${note(msg)}`);
}

/** Fails: this line was never to be reached. */
export function unreachable(msg?: string): never {
  throw new AssertionError(`Unreachable${note(msg)}`);
}
