//! Expressions that nobody would write, made at random: deep, wide, long and dear ones. Whatever is asked, nothing panics, no
//! stack overflows, and no more work is done than was granted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cel::Value;
use cel::objects::{Key, Map};

use super::*;

/// A stack half as large as that of the smallest thread that asks.
const STACK: usize = 1 << 20;
/// More than this is not done for one evaluation, whatever it is.
const STEPS: u64 = 31_000_000;

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }
}

fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(work).unwrap().join().unwrap();
}

fn variables() -> BTreeMap<&'static str, Type> {
    let item = Object {
        name: "item".to_owned(),
        fields: BTreeMap::from([
            ("name".to_owned(), Type::String),
            ("n".to_owned(), Type::Int),
        ]),
    };
    BTreeMap::from([
        ("self", Type::list(Type::Int)),
        ("text", Type::String),
        ("texts", Type::list(Type::String)),
        ("map", Type::map(Type::String, Type::String)),
        ("items", Type::list(Type::Object(Arc::new(item)))),
        ("any", Type::Dyn),
        ("x", Type::Dyn),
        ("y", Type::Dyn),
    ])
}

fn values() -> Vec<(&'static str, Value)> {
    let list = |items: Vec<Value>| Value::List(Arc::new(items));
    let map = |entries: Vec<(&str, Value)>| {
        let entries = entries.into_iter();
        Value::Map(Map {
            map: Arc::new(
                entries
                    .map(|(key, value)| (Key::from(key), value))
                    .collect(),
            ),
        })
    };
    let text = |text: &str| Value::String(Arc::new(text.to_owned()));
    let item = |n: i64| {
        map(vec![
            ("name", text(&format!("item-{n}"))),
            ("n", Value::Int(n)),
        ])
    };
    vec![
        ("self", list((0..7_000).map(Value::Int).collect())),
        ("text", text(&"ab,é".repeat(2_000))),
        (
            "texts",
            list((0..500).map(|n| text(&format!("t{n}"))).collect()),
        ),
        ("map", map(vec![("a", text("b")), ("c", text("d"))])),
        ("items", list((0..200).map(item).collect())),
        (
            "any",
            map(vec![("a", list(vec![Value::Null, Value::Float(1.5)]))]),
        ),
        ("x", Value::Int(1)),
        ("y", text("y")),
    ]
}

/// Compiles and computes it; how much of it was granted, and how much was taken.
fn try_one(source: &str) {
    let compiled = Expression::compile(source, &variables());
    let device = Expression::compile_of_device(source);
    if let Err(words) = &compiled {
        // A line is quoted for each of a hundred complaints.
        assert!(words.len() < 200 * (2 * source.len() + 2_000));
    }
    let values = values();
    for compiled in [compiled.ok(), device.ok().map(|(compiled, _)| compiled)] {
        let Some(compiled) = compiled else { continue };
        let mut meter = Meter::new(PER_CALL);
        let found = compiled.evaluate(&values, &mut meter);
        assert!(meter.steps() < STEPS, "{} steps", meter.steps());
        if found != Err(Failure::Spent) {
            assert!(meter.cost() <= PER_CALL, "{}", meter.cost());
        }
    }
    let bounds = Bounds::default();
    let _ = Expression::compile_bounded(source, &variables(), &bounds);
}

const LEAVES: [&str; 20] = [
    "self",
    "text",
    "texts",
    "map",
    "items",
    "any",
    "x",
    "y",
    "1",
    "-1",
    "2u",
    "1.5",
    "'a'",
    "b'a'",
    "true",
    "null",
    "[]",
    "{}",
    "''",
    "9223372036854775807",
];
const BINARY: [&str; 15] = [
    "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", " in ", "\n?1:",
];
const METHODS: [&str; 42] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "find",
    "findAll",
    "split",
    "join",
    "replace",
    "lowerAscii",
    "upperAscii",
    "trim",
    "substring",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "format",
    "reverse",
    "distinct",
    "sort",
    "flatten",
    "slice",
    "sum",
    "min",
    "max",
    "isSorted",
    "hasValue",
    "value",
    "orValue",
    "or",
    "compareTo",
    "add",
    "sub",
    "isGreaterThan",
    "validate",
    "getHours",
    "getFullYear",
    "containsIP",
    "masked",
    "family",
    "unwrapOpt",
];
const FUNCTIONS: [&str; 34] = [
    "size",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "dyn",
    "type",
    "duration",
    "timestamp",
    "quantity",
    "isQuantity",
    "semver",
    "isSemver",
    "url",
    "isURL",
    "ip",
    "isIP",
    "cidr",
    "isCIDR",
    "lists.range",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
    "strings.quote",
    "format.named",
    "ip.isCanonical",
    "sign",
    "has",
    "unknown",
];
const MACROS: [&str; 8] = [
    "all",
    "exists",
    "exists_one",
    "map",
    "filter",
    "transformList",
    "transformMap",
    "sortBy",
];

/// Any expression, well-typed or not.
fn any(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return random.of(&LEAVES).to_owned();
    }
    let inner = |random: &mut Random| {
        let depth = random.below(depth);
        any(random, depth)
    };
    match random.below(11) {
        0 => format!("({})", inner(random)),
        1 | 2 => {
            let (one, other) = (inner(random), inner(random));
            format!("({one}) {} ({other})", random.of(&BINARY))
        }
        3 => format!("[{}, {}]", inner(random), inner(random)),
        4 => format!("{{{}: {}}}", inner(random), inner(random)),
        5 => format!("({}).{}", inner(random), random.of(&["name", "?n", "a"])),
        6 => format!("({})[{}]", inner(random), inner(random)),
        7 => {
            let count = random.below(3);
            let args: Vec<String> = (0..count).map(|_| inner(random)).collect();
            format!("{}({})", random.of(&FUNCTIONS), args.join(", "))
        }
        8 => {
            let count = random.below(3);
            let args: Vec<String> = (0..count).map(|_| inner(random)).collect();
            format!(
                "({}).{}({})",
                inner(random),
                random.of(&METHODS),
                args.join(", ")
            )
        }
        9 => {
            let of = random.of(&["self", "texts", "items", "map", "any.a", "x"]);
            let name = random.of(&["x", "y"]);
            format!("{of}.{}({name}, {})", random.of(&MACROS), inner(random))
        }
        _ => {
            let of = random.of(&["self", "texts", "items", "map"]);
            format!("{of}.{}(x, y, {})", random.of(&MACROS), inner(random))
        }
    }
}

/// One thing over and over.
fn repeated(random: &mut Random) -> String {
    let count = [3, 30, 120, 249, 250, 251, 1_000, 5_000, 20_000][random.below(9)];
    let around = |before: &str, middle: &str, after: &str| {
        format!("{}{middle}{}", before.repeat(count), after.repeat(count))
    };
    let leaf = random.of(&LEAVES);
    match random.below(16) {
        0 => vec![leaf; count].join(random.of(&BINARY)),
        1 => around("(", leaf, ")"),
        2 => around("[", leaf, "]"),
        3 => around("{1:", leaf, "}"),
        4 => around(random.of(&["!", "-", "- -"]), leaf, ""),
        5 => format!(
            "{leaf}{}",
            random
                .of(&[".x", "[0]", ".?x", "[?0]", ".size()", ".a.b[0].c()"])
                .repeat(count)
        ),
        6 => around("true ? true : ", leaf, ""),
        7 => around("true ? ", leaf, " : false"),
        8 => {
            let of = random.of(&["self", "[1]", "texts", "map"]);
            let name = random.of(&["all", "exists", "map", "filter", "exists_one"]);
            around(&format!("{of}.{name}(x, "), leaf, ")")
        }
        9 => around("dyn(", leaf, ")"),
        10 => format!("[{}]", vec![leaf; count].join(",")),
        11 => format!(
            "{{{}}}",
            (0..count)
                .map(|n| format!("{n}: {leaf}"))
                .collect::<Vec<_>>()
                .join(",")
        ),
        12 => around("optional.of(", leaf, ")"),
        13 => {
            // Every name stands for the one before, twice.
            let count = count.min(200);
            let start: Vec<String> = (1..count)
                .map(|n| format!("cel.bind(v{n}, dyn([v{}, v{}]), ", n - 1, n - 1))
                .collect();
            let end = random.of(&["string", "size", "type", "dyn"]);
            let last = count - 1;
            format!(
                "cel.bind(v0, [1], {}{end}(v{last}) == v{last} || '%s'.format([v{last}]) == ''{})",
                start.concat(),
                ")".repeat(count - 1)
            )
        }
        14 => format!(
            "{}{}",
            random.of(&["'", "\"", "'''", "r'", "b\"", "'\\", "`"]),
            leaf.repeat(count)
        ),
        _ => {
            let letters = [
                "(", ")", "[", "]", "{", "}", "a", "1", ".", ",", "?", ":", "+", "&&", "'", "\"",
                "\\", " ", "é", "//", "\n",
            ];
            (0..count).map(|_| random.of(&letters)).collect()
        }
    }
}

#[test]
fn nothing_that_is_asked_brings_it_down() {
    let seed = match std::env::var("PLIMSOLL_CLASS_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => 18,
    };
    let seconds = std::env::var("PLIMSOLL_CLASS_SECONDS");
    let seconds = seconds.ok().and_then(|seconds| seconds.parse().ok());
    println!("seed {seed}");
    on_small_stack(move || {
        let start = Instant::now();
        for round in 0_u64.. {
            let enough = match seconds {
                Some(seconds) => start.elapsed() > Duration::from_secs(seconds),
                None => round == 120,
            };
            if enough {
                break;
            }
            let mut random = Random(seed + round);
            let source = match round % 4 {
                0 => repeated(&mut random),
                _ => {
                    let depth = 2 + random.below(8);
                    any(&mut random, depth)
                }
            };
            let shown: String = source.chars().take(300).collect();
            println!("seed {} round {round}: {shown}", seed + round);
            try_one(&source);
        }
    });
}

#[test]
fn the_deepest_expressions_fit_on_a_small_stack() {
    let around = |before: &str, count: usize, middle: &str, after: &str| {
        format!("{}{middle}{}", before.repeat(count), after.repeat(count))
    };
    let sources = [
        vec!["1"; 249].join("+") + " == 249",
        around("(", 249, "true", ")"),
        around("[", 240, "1", "]") + " != dyn([1])",
        around("{1: ", 240, "1", "}") + " != dyn({1: 1})",
        around("true ? true : ", 249, "true", ""),
        around("false || (true && ", 120, "true", ")"),
        around("[x].all(x, ", 240, "true", ")"),
        around("[x].map(x, ", 240, "1", ")") + " != dyn([1])",
        around("dyn(", 240, "true", ")"),
        around("[x].exists_one(x, !(true && ", 120, "true", "))"),
        around("(1 + 1 * dyn(", 80, "1", "))") + " > 0",
        around("!(true && true == ", 165, "true", ")"),
        format!("any{} == 1", "[?'a']".repeat(240)),
        vec!["true"; 5_000].join("&&"),
    ];
    on_small_stack(move || {
        for source in sources {
            let shown = &source[..40];
            let compiled = Expression::compile(&source, &variables());
            let compiled = compiled
                .unwrap_or_else(|words| panic!("{shown}: {}", &words[..200.min(words.len())]));
            let found = compiled.evaluate(&values(), &mut Meter::new(PER_CALL));
            assert!(matches!(found, Ok(Value::Bool(_))), "{shown}: {found:?}");
        }
    });
}

#[test]
fn what_is_too_deep_or_too_long_is_refused_before_it_is_read() {
    on_small_stack(|| {
        let joined = |sign: &str| vec!["self"; 5_000].join(sign);
        let around = |before: &str, middle: &str, after: &str| {
            format!("{}{middle}{}", before.repeat(5_000), after.repeat(5_000))
        };
        for source in [
            joined("+"),
            joined("=="),
            joined("*"),
            joined(" in "),
            joined("?1:"),
            format!("self{}", ".x".repeat(5_000)),
            format!("self{}", "[0]".repeat(5_000)),
            format!("self{}", ".f()".repeat(5_000)),
            around("(", "1", ")"),
            around("[", "1", "]"),
            around("{1:", "1", "}"),
            around("f(", "1", ")"),
            around("self.all(x, ", "true", ")"),
            // Some of it makes several levels.
            format!(
                "{}true{}",
                "!(true && true == ".repeat(240),
                ")".repeat(240)
            ),
        ] {
            let words = Expression::compile(&source, &variables()).unwrap_err();
            let known = ["recursion depth exceeded", "recursion limit exceeded"];
            assert!(
                known.iter().any(|known| words.contains(known)) && words.len() < 200,
                "{}: {words}",
                &source[..30]
            );
        }
    });
}

#[test]
fn what_costs_too_much_ends() {
    let spent = |source: &str| {
        let compiled = Expression::compile(source, &variables()).unwrap();
        let mut meter = Meter::new(PER_CALL);
        let found = compiled.evaluate(&values(), &mut meter);
        assert!(meter.steps() < STEPS, "{source}");
        assert_eq!(found, Err(Failure::Spent), "{source}");
    };
    for source in [
        "self.all(x, self.exists_one(y, x == y))",
        "self.exists(x, self.exists(y, self.exists(z, x + y + z < 0))) || true",
        "self.map(x, self.map(y, [x, y])).size() > 0",
        "self.all(x, text.matches('(a|b|,)*$') || true)",
        "self.all(x, text.matches(text + '*') || true)",
        "self.all(x, text.replace('a', text).size() > 0)",
        "text.replace('', text).replace('', text) != ''",
        "texts.all(x, self.all(y, self.sort().size() > 0))",
        "self.distinct().size() > 0",
        "sets.equivalent(self, self)",
        "lists.range(100000000).size() > 0",
        "lists.range(9223372036854775807).size() > 0",
        "self.all(x, text.split('').join(text) != '')",
        "self.all(x, '%s'.format([self]) != '')",
        "self.all(x, text.indexOf('c') == -1)",
        "self.all(x, text.size() > 0 && self == self)",
        "self.all(x, (text + text + text).contains(text + 'z') || true)",
        "self.all(x, self.sum() > 0)",
        "self.transformList(i, v, self.transformMapEntry(j, w, {w: self})).size() > 0",
    ] {
        spent(source);
    }
}

/// A value of few parts can have many ways through it.
#[test]
fn values_that_share_their_parts_do_not_explode() {
    let mut source = String::from("cel.bind(v0, dyn([1]), ");
    for n in 1..60 {
        source += &format!("cel.bind(v{n}, [v{}, v{}], ", n - 1, n - 1);
    }
    for end in [
        "dyn(v59) == v58",
        "'%s'.format([v59]) == ''",
        "v59 in [v59]",
        "v59.flatten(60).size() > 0",
        "dyn(v59).indexOf(v58) == 0",
    ] {
        let source = format!("{source}{end}{}", ")".repeat(60));
        let (compiled, _) = Expression::compile_of_device(&source).unwrap();
        let mut meter = Meter::new(PER_CALL);
        let found = compiled.evaluate(&[], &mut meter);
        assert!(meter.steps() < STEPS, "{end}");
        assert!(
            !matches!(found, Ok(ref value) if *value != Value::Bool(false)),
            "{end}: {found:?}"
        );
    }
}

#[test]
fn nobody_waits_for_what_nobody_wants() {
    let source = "self.all(x, self.exists_one(y, x == y))";
    let compiled = Expression::compile(source, &variables()).unwrap();
    let gone = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let mut meter = until(gone, || Meter::new(u64::MAX));
    let found = compiled.evaluate(&values(), &mut meter);
    assert_eq!(found, Err(Failure::Cancelled));
    assert!(meter.steps() < 10_000, "{}", meter.steps());
    let found = compiled.evaluate(&values(), &mut Meter::new(PER_CALL));
    assert_eq!(found, Err(Failure::Spent));
}
