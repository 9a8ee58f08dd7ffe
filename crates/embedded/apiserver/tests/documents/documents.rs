//! Documents by the facts about types, as text, so that they can be what no parsed value is.

use std::fmt::Write;

use fastrand::Rng;
use plimsoll_apiserver::schema::{Shape, TypeId, Types};
use serde_json::Value;

const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "default",
    "name-1",
    "A",
    "-",
    "..",
    "a/b",
    "a.example.com/b",
    "*",
    "0",
    "80",
    "1Gi",
    "100m",
    "-1",
    "true",
    "null",
    "Always",
    "ClusterIP",
    "TCP",
    "10.0.0.1",
    "::1",
    "10.0.0.0/8",
    "\\u0000",
    "\\ud800",
    "é",
    "\u{661}",
    "2026-01-01T00:00:00Z",
    "$(A)",
    "{.a}",
    "..[*]..[*]",
    "[?(@.a=='",
    "a,b in (c)",
    "{\\\"a\\\":[[[[]]]]}",
    "@every 1s",
    "* * * * *",
    "localhost/x",
    "%00",
    "' or 1",
    "<&>",
    "9223372036854775808",
];
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "80",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "1e400",
    "-1e400",
    "1e-400",
    "1.5",
    "1e3",
    "0.1",
    "99999999999999999999999999999999999999999",
];
const QUANTITIES: &[&str] = &[
    "0",
    "1",
    "100m",
    "1Gi",
    "-1",
    "1e400",
    "1e2147483647",
    "1e-2147483648",
    "1.5e-2147483648",
    "9223372036854775807Ei",
    "-9E",
    "NaN",
    "",
    "0.00000000000000000000001",
    "340282366920938463463374607431768211456",
];
const MOMENTS: &[&str] = &[
    "2026-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00-24:60",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999-24:00",
    "2026-01-01T00:00:00.000000Z",
    "x",
    "",
];

pub fn pick<'t>(rng: &mut Rng, from: &[&'t str]) -> &'t str {
    from[rng.usize(..from.len())]
}

/// One in so many.
pub fn seldom(rng: &mut Rng, many: usize) -> bool {
    rng.usize(..many) == 0
}

pub struct Writer<'r> {
    pub rng: &'r mut Rng,
    pub out: String,
    /// So much may still be written.
    left: usize,
}

impl<'r> Writer<'r> {
    pub fn new(rng: &'r mut Rng) -> Self {
        let left = match rng.usize(..20) {
            0 => 300_000,
            1..4 => 30_000,
            _ => 4000,
        };
        Self {
            rng,
            out: String::new(),
            left,
        }
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.left = self.left.saturating_sub(text.len());
    }

    fn text(&mut self) {
        let text = match self.rng.usize(..200) {
            0 => "x".repeat(self.rng.usize(..self.left.max(1))),
            1 => "\\u00e9\\n".repeat(self.rng.usize(..100)),
            2 => "a/".repeat(self.rng.usize(..5000)),
            _ => pick(self.rng, TEXTS).to_owned(),
        };
        self.put(&format!("\"{text}\""));
    }

    /// Things within things.
    pub fn deep(&mut self) {
        let levels = match self.rng.usize(..4) {
            0 => 20_000,
            1 => self.rng.usize(90..130),
            _ => self.rng.usize(..100),
        };
        let (open, close) = match self.rng.bool() {
            true => ("[", "]"),
            false => ("{\"a\":", "}"),
        };
        self.put(&open.repeat(levels));
        self.put("1");
        self.put(&close.repeat(levels));
    }

    pub fn anything(&mut self, levels: usize) {
        match self.rng.usize(..9) {
            0 => self.put("null"),
            1 => self.put("true"),
            2 => {
                let number = pick(self.rng, NUMBERS);
                self.put(number);
            }
            3 if levels > 0 => {
                self.put("[");
                self.several(|this, _| this.anything(levels - 1));
                self.put("]");
            }
            4 | 5 if levels > 0 => {
                self.put("{");
                self.several(|this, index| {
                    this.key(index);
                    this.anything(levels - 1);
                });
                self.put("}");
            }
            6 if seldom(self.rng, 20) => self.deep(),
            _ => self.text(),
        }
    }

    fn key(&mut self, index: usize) {
        match self.rng.usize(..3) {
            0 => self.text(),
            1 => self.put("\"a\""),
            _ => self.put(&format!("\"k{index}\"")),
        }
        self.put(":");
    }

    fn several(&mut self, mut one: impl FnMut(&mut Self, usize)) {
        let count = match self.rng.usize(..100) {
            0 => self.rng.usize(..2000),
            1..10 => self.rng.usize(..20),
            _ => self.rng.usize(..3),
        };
        let start = self.out.len();
        for index in 0..count {
            if self.left == 0 {
                break;
            }
            if self.out.len() > start {
                self.put(",");
            }
            one(self, index);
        }
    }

    pub fn shape(&mut self, shape: &Shape, levels: usize) {
        if seldom(self.rng, 60) {
            return self.anything(3);
        }
        match shape {
            Shape::Text(_) | Shape::Duration => self.text(),
            Shape::Bool => {
                let flag = pick(self.rng, &["true", "false"]);
                self.put(flag);
            }
            Shape::Int32 | Shape::Int64 | Shape::Float => {
                let number = pick(self.rng, NUMBERS);
                self.put(number);
            }
            Shape::IntOrString if self.rng.bool() => self.text(),
            Shape::IntOrString => self.put("80"),
            Shape::Bytes => self.put("\"YQ==\""),
            Shape::Quantity => {
                let quantity = pick(self.rng, QUANTITIES);
                self.put(&format!("\"{quantity}\""));
            }
            Shape::Time | Shape::MicroTime => {
                let moment = pick(self.rng, MOMENTS);
                self.put(&format!("\"{moment}\""));
            }
            Shape::Any => self.anything(4),
            Shape::List(inner, _) => {
                self.put("[");
                self.several(|this, _| this.shape(inner, levels.saturating_sub(1)));
                self.put("]");
            }
            Shape::Map(inner, _) => {
                self.put("{");
                self.several(|this, index| {
                    this.key(index);
                    this.shape(inner, levels.saturating_sub(1));
                });
                self.put("}");
            }
            Shape::Struct(id) => {
                self.put("{");
                self.fields(*id, levels, &[]);
                self.put("}");
            }
        }
    }

    /// Some of the fields of a type, without braces.
    fn fields(&mut self, id: TypeId, levels: usize, without: &[&str]) {
        let of = Types::builtin().get(id);
        let start = self.out.len();
        for field in &of.fields {
            let is_simple = !matches!(
                field.shape,
                Shape::Struct(_) | Shape::List(..) | Shape::Map(..)
            );
            let often = if field.required { 10 } else { 2 };
            let wanted = (levels > 0 || is_simple) && self.rng.usize(..12) < often;
            if without.contains(&&*field.name) || !wanted || self.left == 0 {
                continue;
            }
            let times = if seldom(self.rng, 100) { 2 } else { 1 };
            for _ in 0..times {
                if self.out.len() > start {
                    self.put(",");
                }
                self.put(&format!("\"{}\":", field.name));
                self.shape(&field.shape, levels.saturating_sub(1));
            }
        }
        if seldom(self.rng, 30) {
            if self.out.len() > start {
                self.put(",");
            }
            self.put("\"nobodyKnows\":");
            self.anything(2);
        }
    }

    /// An object that is mostly called as it should be.
    pub fn object(&mut self, api_version: &str, kind: &str, id: TypeId, name: &str) {
        let _ = write!(
            self.out,
            "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"{name}\""
        );
        let meta = Types::builtin().find("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
        if let Some(meta) = meta.filter(|_| seldom(self.rng, 3)) {
            self.put(",\"z\":{");
            self.fields(meta, 3, &["name", "namespace", "uid"]);
            self.put("}");
        }
        if seldom(self.rng, 10) {
            self.put(",\"managedFields\":[{\"manager\":\"m\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":");
            self.deep_fields();
            self.put("}]");
        }
        self.put("}");
        let start = self.out.len();
        self.put(",");
        self.fields(id, 7, &["metadata", "kind", "apiVersion"]);
        if self.out.len() == start + 1 {
            self.out.truncate(start);
        }
        self.put("}");
    }

    /// A field of the kind that the world has a definition of.
    pub fn of_a_thing(&mut self, field: &str) {
        match field {
            "keyed" => {
                self.put("[");
                self.several(|this, index| {
                    let name = if this.rng.bool() { index } else { 0 };
                    this.put(&format!("{{\"name\":\"{name}\",\"value\":"));
                    this.anything(2);
                    this.put("}");
                });
                self.put("]");
            }
            "set" => {
                self.put("[");
                self.several(|this, _| this.text());
                self.put("]");
            }
            "open" if seldom(self.rng, 3) => self.deep(),
            _ => self.anything(5),
        }
    }

    fn deep_fields(&mut self) {
        let levels = self.rng.usize(..130);
        self.put(&"{\"f:a\":".repeat(levels));
        self.put("{}");
        self.put(&"}".repeat(levels));
    }
}

/// A way into an object that is there, in JSON patch's words.
pub fn pointer(rng: &mut Rng, object: &Value) -> String {
    let mut way = String::new();
    let mut here = object;
    loop {
        match here {
            Value::Object(fields) if !fields.is_empty() && !seldom(rng, 4) => {
                let (name, inner) = fields.iter().nth(rng.usize(..fields.len())).unwrap();
                let _ = write!(way, "/{}", name.replace('~', "~0").replace('/', "~1"));
                here = inner;
            }
            Value::Array(items) if !items.is_empty() && !seldom(rng, 4) => {
                let index = rng.usize(..items.len());
                let _ = write!(way, "/{index}");
                here = &items[index];
            }
            _ => break,
        }
    }
    if seldom(rng, 3) {
        way.push_str(pick(
            rng,
            &[
                "/new",
                "/-",
                "/0",
                "/-1",
                "/9223372036854775807",
                "/-9223372036854775808",
                "/a/b/c",
                "",
            ],
        ));
    }
    way
}
