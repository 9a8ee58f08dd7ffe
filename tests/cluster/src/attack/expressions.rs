//! Expressions that are deep, long or dear.

use fastrand::Rng;
use serde_json::json;

use super::class::{JSON, Shot};
use super::made_up::{object_of, pick};

pub fn shot(random: &mut Rng, number: u64) -> Shot {
    let (path, mut claim) = object_of("resource.k8s.io/v1/resourceclaims", number);
    let text = expression(random);
    let requests = &mut claim["spec"]["devices"]["requests"];
    requests[0]["exactly"]["selectors"] = json!([{"cel": {"expression": text}}]);
    Shot::new("POST", path, JSON, claim.to_string().into_bytes())
}

fn expression(random: &mut Rng) -> String {
    let count = pick(random, &[10, 100, 250, 300, 1_000, 2_400, 5_000, 60_000]);
    let few = count.min(12);
    match random.u8(..16) {
        0 => joined(
            "true",
            pick(random, &[" && ", " || ", " == ", " != "]),
            count,
        ),
        1 => joined(
            "1",
            pick(random, &[" + ", " - ", " * ", " / ", " < "]),
            count,
        ),
        2 => format!("device{}", ".x".repeat(count)),
        3 => format!("device{}", "[0]".repeat(count)),
        4 => format!("{}1{}", "(".repeat(count), ")".repeat(count)),
        5 => format!("{}true", "!".repeat(count)),
        6 => format!("{}1 > 0", "-".repeat(count)),
        7 => format!("{}{}", "true ? ".repeat(count), "1 : 2 ".repeat(count)),
        8 => format!("{}{} == []", "[".repeat(count), "]".repeat(count)),
        9 => format!("{}1{} == {{}}", "{'a': ".repeat(count), "}".repeat(count)),
        // Loops in loops over a list that is written down.
        10 => {
            let list = format!("[{}]", joined("1", ",", count.min(300)));
            let opening: String = (0..few)
                .map(|level| format!("{list}.all(v{level}, "))
                .collect();
            format!("{opening}true{}", ")".repeat(few))
        }
        11 => format!(
            "{}.size() > 0",
            "\"x\".replace(\"x\", \"xx\")".to_owned()
                + &".replace('x', 'xx')".repeat(count.min(300))
        ),
        12 => format!(
            "'{}'.matches('{}')",
            "a".repeat(count.min(3_000)),
            "(a*)*".repeat(few) + "b"
        ),
        13 => format!("'{}' == ''", "\\u0041".repeat(count)),
        14 => format!("{} == 1", "9".repeat(count)),
        _ => {
            const PIECES: [&str; 24] = [
                "(", ")", "[", "]", "{", "}", "'", "\"", ".", ",", "?", ":", "&&", "||", "!", "-",
                "1", "1u", "0x", "a", "device", ".all(x, ", ".map(x, ", "in",
            ];
            (0..count).map(|_| pick(random, &PIECES)).collect()
        }
    }
}

fn joined(term: &str, by: &str, count: usize) -> String {
    vec![term; count].join(by)
}
