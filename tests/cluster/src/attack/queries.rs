//! What stands in the first line and in the headers: paths, queries, selectors, formats, identities.

use fastrand::Rng;

use super::class::{JSON, Shot, Tenant};
use super::made_up::{KINDS, object_of, pick};

const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "1e9",
    "NaN",
    "",
    "0x1",
    "１",
    "%00",
    "2147483648",
    "999999999999999999999999",
    "1.5",
];
const NUMBERED: [&str; 6] = [
    "limit",
    "timeoutSeconds",
    "resourceVersion",
    "gracePeriodSeconds",
    "timeout",
    "continue",
];

pub fn shot(random: &mut Rng, number: u64) -> Shot {
    let kind = pick(random, &KINDS);
    let (collection, _) = object_of(kind, number);
    let mut shot = Shot::new("GET", collection.clone(), "", Vec::new());
    match random.u8(..10) {
        0..3 => {
            let mut query = String::new();
            for _ in 0..random.usize(1..5) {
                query.push_str(&format!(
                    "&{}={}",
                    pick(random, &NUMBERED),
                    pick(random, &NUMBERS)
                ));
            }
            // A watch would go on; this one ends by the least time that can be asked for, or is refused.
            let watch = if random.u8(..3) == 0 {
                "&watch=true&timeoutSeconds=1"
            } else {
                ""
            };
            shot.path = format!("{collection}?x=y{watch}{query}")
                .replace("watch=true&timeoutSeconds=1", "timeoutSeconds=1");
        }
        3 => {
            let count = pick(random, &[10, 1_000, 4_000]);
            let term = pick(random, &["a=b", "a%20in%20(b)", "!a", "a!=b", "a", "a%3e1"]);
            let selector = vec![term; count].join(",");
            let which = pick(random, &["labelSelector", "fieldSelector"]);
            shot.path = format!("{collection}?{which}={selector}");
        }
        4 => {
            let count = pick(random, &[100, 3_000]);
            let values = vec!["v"; count].join(",");
            shot.path = format!("{collection}?labelSelector=a%20in%20({values})");
        }
        5 => {
            let part = pick(
                random,
                &[
                    "/..", "/%2e%2e", "//", "/%00", "/%2f", "/a", "/%", "/%zz", "/ü",
                ],
            );
            shot.path = format!("{collection}{}", part.repeat(pick(random, &[1, 30, 3_000])));
            if shot.path.contains('ü') {
                shot.path = shot.path.replace('ü', "%C3%BC");
            }
        }
        6 => {
            let count = pick(random, &[1, 100, 400]);
            let accept = pick(
                random,
                &[
                    "application/json;q=0.1",
                    "*/*",
                    "application/json;as=Table;v=v1;g=meta.k8s.io",
                    ";;;",
                    "application/yaml",
                ],
            );
            shot.headers
                .push(("Accept".to_owned(), vec![accept; count].join(",")));
        }
        7 => {
            let count = pick(random, &[1, 20, 90]);
            let name = pick(
                random,
                &[
                    "Impersonate-Group",
                    "Impersonate-User",
                    "Impersonate-Extra-x",
                    "X-Remote-User",
                    "X-Remote-Group",
                ],
            );
            for index in 0..count {
                shot.headers
                    .push((name.to_owned(), format!("system:masters{index}")));
            }
        }
        8 => {
            let word = pick(
                random,
                &[
                    "PROPFIND", "OPTIONS", "HEAD", "TRACE", "CONNECT", "get", "DELETE", "PUT",
                ],
            );
            shot.method = word;
            shot.body = b"{".repeat(random.usize(..2_000));
            shot.media = JSON;
        }
        _ => {
            shot.path = pick(
                random,
                &[
                    "/openapi/v2",
                    "/openapi/v3",
                    "/openapi/v3/apis/apps/v1",
                    "/apis",
                    "/metrics",
                    "/version",
                    "/healthz/x",
                    "/readyz?verbose&exclude=x",
                    "/api/v1/watch/pods?timeoutSeconds=1",
                    "/logs/",
                    "/debug/pprof/",
                    "/api/v1/componentstatuses",
                    "/api/v1/nodes/sim-0001/proxy/",
                    "/api/v1/namespaces/$ns/pods/x/exec?command=sh",
                ],
            )
            .to_owned();
        }
    }
    shot.tenant = pick(random, &[Tenant::Editor, Tenant::Nobody, Tenant::Admin]);
    shot
}
