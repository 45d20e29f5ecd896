// A page that is served asks whether there is a newer one, and shows it; the address keeps what was chosen.

import { data } from "./data.js";

const PAUSE = 1000;

export async function followSource() {
  if (!data.served) return;
  const version = async () => (await fetch("/version")).text();
  const first = await version().catch(() => null);
  setInterval(async () => {
    const now = await version().catch(() => null);
    if (first !== null && now !== null && now !== first) location.reload();
  }, PAUSE);
}
