//! Large objects that change all the time, before watchers who do not read.

use anyhow::{Result, ensure};
use serde_json::json;

use super::class::{JSON, MERGE_PATCH, Shot, Tenant};
use super::victim::Victim;

const WATCHERS: usize = 12;
const SIZE: usize = 900_000;

pub fn blow(victim: &Victim, seed: u64, shots: u64) -> Result<String> {
    let collection = "/api/v1/namespaces/$ns/configmaps";
    let mut random = fastrand::Rng::with_seed(seed);
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let watch = Shot::new("GET", format!("{collection}?watch=true"), "", Vec::new());
        watchers.push(victim.server.send(&victim.request(&watch))?);
    }
    let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(SIZE)}});
    let made = victim.take(&Shot::new(
        "POST",
        collection.to_owned(),
        JSON,
        large.to_string().into_bytes(),
    ))?;
    ensure!(made == 201, "a large object is answered {made}");
    let mut taken = 0;
    for _ in 0..shots {
        let letter = random.alphanumeric().to_string();
        let change = json!({"data": {"k": letter.repeat(SIZE)}}).to_string();
        let mut shot = Shot::new(
            "PATCH",
            format!("{collection}/large"),
            MERGE_PATCH,
            change.into_bytes(),
        );
        shot.tenant = if random.bool() {
            Tenant::Editor
        } else {
            Tenant::Admin
        };
        let status = victim.take(&shot)?;
        ensure!(
            matches!(status, 200 | 429),
            "an update is answered {status}"
        );
        taken += u64::from(status == 200);
        // Whole lists, of which nobody needs all at once.
        if random.u8(..8) == 0 {
            victim.take(&Shot::new("GET", collection.to_owned(), "", Vec::new()))?;
        }
    }
    drop(watchers);
    Ok(format!(
        "{taken} of {shots} updates of {SIZE} bytes before {WATCHERS} watchers"
    ))
}
