// Long work in short slices, so that the page answers in between.

const SLICE = 24;

// Runs a generator to its end; a promise of what it returns, or of nothing where `isStale` says that it is no longer needed.
export async function sliced(work, isStale) {
  for (;;) {
    const begun = performance.now();
    do {
      const step = work.next();
      if (step.done) return step.value;
    } while (performance.now() - begun < SLICE);
    await new Promise((resume) => setTimeout(resume));
    if (isStale()) return null;
  }
}

// The same at once.
export function finished(work) {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}
