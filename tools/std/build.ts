/**
 * The `#build` of a start with the fallback modules: the program's own facts, with `std` telling
 * that the JSR registry's modules were not used.
 *
 * @module
 */
import { BUILD as PROGRAM, type Build } from "../../src/build.ts";

/** The program's facts; `std` is `fallback`. */
export const BUILD: Build = Object.freeze({ ...PROGRAM, std: "fallback" });
