//! Documents that nobody means well with: templates whose leaves are made extreme, wrong-typed, many or long.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};

/// Plays rounds, each with a seed of its own: `at_least` so many, and on for `PLIMSOLL_CLASS_SECONDS`. The seed of one that
/// fails is printed; `PLIMSOLL_CLASS_SEED` plays it again.
pub fn rounds(at_least: u64, mut round: impl FnMut(u64)) {
    let told = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let mut play = |seed: u64| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| round(seed))) {
            eprintln!("seed {seed}; again with PLIMSOLL_CLASS_SEED={seed}");
            resume_unwind(panic);
        }
    };
    if let Some(seed) = told("PLIMSOLL_CLASS_SEED") {
        return play(seed);
    }
    (1..=at_least).for_each(&mut play);
    let Some(seconds) = told("PLIMSOLL_CLASS_SECONDS") else {
        return;
    };
    let (began, mut fresh) = (Instant::now(), Rng::new());
    let mut played = at_least;
    while began.elapsed() < Duration::from_secs(seconds) {
        play(fresh.u64(1 << 32..1 << 52));
        played += 1;
    }
    eprintln!("{played} rounds");
}

/// Numbers at the edges of what somebody may count with.
pub const NUMBERS: [i64; 16] = [
    0,
    1,
    -1,
    2,
    100,
    101,
    1 << 31,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    1 << 53,
    1 << 62,
    i64::MAX - 1,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

/// Texts that mean numbers, times, durations and names, at the edges.
pub const TEXTS: [&str; 44] = [
    "",
    "0",
    "1",
    "-1",
    "1m",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999999999999999999999999",
    "8Ei",
    "7Ei",
    "-8Ei",
    "16Ei",
    "9E",
    "1n",
    "0.000000001",
    "1e2147483647",
    "1e-2147483648",
    "1.5e-2147483648",
    "1e30",
    "1e999999999999",
    "0.1e-9",
    "1.7976931348623157e308",
    "5%",
    "100%",
    "2147483647%",
    "9223372036854775807%",
    "-5%",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59+25:59",
    "10000-01-01T00:00:00Z",
    "-009999-01-01T00:00:00Z",
    "2026-11-19T03:30:34Z",
    "9223372036s",
    "9223372036854775807ns",
    "2562047h47m16.854775807s",
    "2562048h",
    "-1h",
    "1e5s",
    "NaN",
    "inf",
    "ä\u{0}\u{202e}\u{1F600}",
    "..",
];

/// Something else in this place: of the same type mostly, extreme mostly.
pub fn extreme(like: &Value, random: &mut Rng) -> Value {
    match random.u8(..20) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(random.bool()),
        4 => json!(NUMBERS[random.usize(..NUMBERS.len())]),
        5 => json!(TEXTS[random.usize(..TEXTS.len())]),
        6 => json!([like.clone(), like.clone()]),
        7 => json!("x".repeat(random.usize(..5000))),
        8 => json!([f64::MAX, f64::MIN_POSITIVE, -0.5, 1e300][random.usize(..4)]),
        9 => json!(u64::MAX),
        _ => match like {
            Value::Number(_) => json!(NUMBERS[random.usize(..NUMBERS.len())]),
            Value::Array(list) => many(list, random),
            _ => json!(TEXTS[random.usize(..TEXTS.len())]),
        },
    }
}

/// None, or each several times.
fn many(list: &[Value], random: &mut Rng) -> Value {
    let times = [0, 2, 3, 50][random.usize(..4)];
    list.iter()
        .cycle()
        .take(list.len() * times)
        .cloned()
        .collect()
}

/// Changes so many places of a document.
pub fn spoil(document: &mut Value, places: usize, random: &mut Rng) {
    for _ in 0..places {
        // What it is altogether stays.
        let parts = document.as_object_mut();
        let parts = parts.map(|parts| parts.values_mut().collect());
        let mut parts: Vec<&mut Value> = parts.unwrap_or_default();
        if parts.is_empty() {
            return;
        }
        let chosen = random.usize(..parts.len());
        spoil_one(parts[chosen], random);
    }
}

/// Goes down by chance and changes what it comes to.
fn spoil_one(at: &mut Value, random: &mut Rng) {
    let stays = random.u8(..12) == 0;
    match at {
        Value::Object(map) if !map.is_empty() && !stays => {
            let chosen = random.usize(..map.len());
            if let Some((_, inner)) = map.iter_mut().nth(chosen) {
                spoil_one(inner, random);
            }
        }
        Value::Array(list) if !list.is_empty() && !stays => {
            let chosen = random.usize(..list.len());
            spoil_one(&mut list[chosen], random);
        }
        _ => *at = extreme(at, random),
    }
}

/// Bytes that are nearly those: some changed, cut off, repeated, or numbers in them made extreme.
pub fn garbled(text: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..random.usize(1..6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.usize(..bytes.len());
        match random.u8(..8) {
            0 => bytes.truncate(at),
            1 => bytes[at] = random.u8(..),
            2 => {
                bytes.insert(at, [b'\n', b' ', 0, b'"', b'-', 0xff][random.usize(..6)]);
            }
            3 => {
                let piece = bytes[at..].to_vec();
                bytes.extend_from_slice(&piece[..piece.len().min(4096)]);
            }
            4 => {
                bytes.drain(at..bytes.len().min(at + 20));
            }
            _ => number_at(&mut bytes, at, random),
        }
    }
    bytes
}

/// The number that is there or comes next is another.
fn number_at(bytes: &mut Vec<u8>, at: usize, random: &mut Rng) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = bytes[at..].iter().position(is_digit).map(|more| at + more) else {
        return;
    };
    let end = bytes[start..].iter().position(|byte| !is_digit(byte));
    let end = end.map_or(bytes.len(), |more| start + more);
    let number = match random.bool() {
        true => NUMBERS[random.usize(..NUMBERS.len())].to_string(),
        false => TEXTS[random.usize(..TEXTS.len())].to_owned(),
    };
    bytes.splice(start..end, number.into_bytes());
}
