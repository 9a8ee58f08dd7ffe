//! How large and how deep an expression may be. It is measured before the parser sees it, in one pass over its letters, so
//! that nothing that recurses ever meets an expression that is too deep for it.
//!
//! The numbers and the way of counting are the original's. There are two depths: expressions within expressions
//! (parentheses, elements, arguments, the last part of a conditional), and operators that stand on each other (`a + b + c`,
//! `a.b.c`, `a[0][0]`). Terms of `&&` and `||` stand side by side.

/// Letters of an expression.
pub const LENGTH: usize = 100_000;
/// Either depth.
pub const DEPTH: usize = 250;
/// Levels of the tree that comes of it. A loop makes several levels, so this is a limit of its own.
pub const TREE: usize = 512;

/// Letters of an expression with a text that does not end.
const BROKEN: usize = 1_000;

/// An expression this deep is parsed on the stack of whoever asks. The parser needs much of it for every level.
const SHALLOW: usize = 1;
/// What parser, checker and estimator need for the deepest expression, in a build without optimisation.
const STACK: usize = 96 << 20;

pub fn too_deep() -> String {
    nowhere("max recursion depth exceeded")
}

fn nowhere(words: &str) -> String {
    format!("ERROR: <input>:-1:0: {words}")
}

/// Refuses what is too long or too deep, and tells how deep it is otherwise.
pub fn measure(source: &str) -> Result<usize, String> {
    // Each letter has a byte at least.
    if source.len() > LENGTH {
        let size = source.chars().count();
        if size > LENGTH {
            return Err(nowhere(&format!(
                "expression code point size exceeds limit: size: {size}, limit {LENGTH}"
            )));
        }
    }
    let mut depths = Depths::default();
    let mut is_broken = false;
    for token in Tokens(source) {
        // Nobody can tell where the texts are that follow. The parser complains about it, if there is not much of it.
        if token == Token::Open {
            is_broken = true;
            if source.len() > BROKEN {
                return Err(nowhere("Syntax error: token recognition error"));
            }
        }
        depths.take(token)?;
    }
    let depth = depths.finish()?;
    Ok(if is_broken { DEPTH } else { depth })
}

/// Does it with a stack that suffices for an expression of this depth.
pub fn with_stack<R: Send>(
    depth: usize,
    work: impl FnOnce() -> Result<R, String> + Send,
) -> Result<R, String> {
    if depth <= SHALLOW {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("expression".to_owned())
            .stack_size(STACK);
        match thread.spawn_scoped(scope, work) {
            Ok(running) => running
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(format!("no stack for a deep expression: {error}")),
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A name, a number, a text.
    Operand(&'a str),
    Sign(&'a str),
    /// A quote that no text begins with.
    Open,
}

/// The tokens of an expression, without white space and comments. What is no token is skipped: the parser will say so.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            self.0 = self.0.trim_start();
            let first = self.0.chars().next()?;
            if let Some(rest) = self.0.strip_prefix("//") {
                self.0 = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            if let Some(length) = quoted(self.0) {
                return Some(Token::Operand(self.cut(length)));
            }
            let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            if first.is_ascii_digit() {
                return Some(Token::Operand(self.cut(number(self.0))));
            }
            if is_word(first) {
                let end = self.0.find(|letter| !is_word(letter));
                return Some(Token::Operand(self.cut(end.unwrap_or(self.0.len()))));
            }
            if let Some(sign) = ["&&", "||", "==", "!=", "<=", ">="]
                .into_iter()
                .find(|sign| self.0.starts_with(sign))
            {
                self.cut(sign.len());
                return Some(Token::Sign(sign));
            }
            let sign = self.cut(first.len_utf8());
            if matches!(first, '"' | '\'' | '`') {
                return Some(Token::Open);
            }
            if first.is_ascii_punctuation() {
                return Some(Token::Sign(sign));
            }
        }
    }
}

impl<'a> Tokens<'a> {
    fn cut(&mut self, length: usize) -> &'a str {
        let (token, rest) = self.0.split_at(length);
        self.0 = rest;
        token
    }
}

/// How long the text is that stands here, with its quotes and what stands before them; `None`: none does.
fn quoted(source: &str) -> Option<usize> {
    let bytes = source.as_bytes();
    let (letters, is_raw) = match bytes {
        [b'b' | b'B', b'r' | b'R', b'"' | b'\'', ..] => (2, true),
        [b'r' | b'R', b'"' | b'\'', ..] => (1, true),
        [b'b' | b'B', b'"' | b'\'', ..] => (1, false),
        [b'`', ..] => (0, true),
        _ => (0, false),
    };
    let bytes = &bytes[letters..];
    let marks: [&[u8]; 5] = [b"\"\"\"", b"'''", b"\"", b"'", b"`"];
    let mark = marks.into_iter().find(|mark| bytes.starts_with(mark))?;
    let mut at = mark.len();
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !is_raw => at += escape(&bytes[at + 1..])? + 1,
            _ if bytes[at..].starts_with(mark) => return Some(letters + at + mark.len()),
            b'\n' | b'\r' if mark.len() == 1 => return None,
            _ => at += 1,
        }
    }
    None
}

/// How long the escape is that follows a backslash.
fn escape(after: &[u8]) -> Option<usize> {
    let digits = match after.first()? {
        b'x' | b'X' => 2,
        b'u' => 4,
        b'U' => 8,
        b'0'..=b'3' => {
            let octal = after.get(1..3)?;
            return octal
                .iter()
                .all(|digit| (b'0'..=b'7').contains(digit))
                .then_some(3);
        }
        letter => return b"abfnrtv\"'\\?`".contains(letter).then_some(1),
    };
    let digits_found = after.get(1..=digits)?;
    digits_found
        .iter()
        .all(u8::is_ascii_hexdigit)
        .then_some(digits + 1)
}

/// How long the number is that stands here.
fn number(source: &str) -> usize {
    let bytes = source.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_hex = source.starts_with("0x");
    let mut at = 0;
    while let Some(&letter) = bytes.get(at) {
        let goes_on = match letter {
            b'.' => is_digit(at + 1),
            b'+' | b'-' => !is_hex && matches!(bytes[at - 1], b'e' | b'E') && is_digit(at + 1),
            letter => letter.is_ascii_alphanumeric(),
        };
        if !goes_on {
            break;
        }
        at += 1;
    }
    at
}

/// What stands between two brackets, or commas, or is the whole expression.
#[derive(Debug, Default)]
struct Element {
    /// `?` so far, and those of them that have no `:` yet.
    conditions: usize,
    open_conditions: usize,
    deepest: usize,
    /// Of the terms of `&&` and `||` so far.
    terms: usize,
    relation: Chain,
    sum: Chain,
    product: Chain,
    /// How deep the operand is that is being read.
    operand: Option<usize>,
    after_dot: bool,
}

/// Operators of one rank: each stands on all before it.
#[derive(Debug, Default)]
struct Chain(Option<usize>);

impl Chain {
    fn push(&mut self, depth: usize) {
        self.0 = Some(match self.0 {
            None => depth,
            Some(before) => before.max(depth) + 1,
        });
    }
}

impl Element {
    fn end_product(&mut self) {
        if let Some(operand) = self.operand.take() {
            self.product.push(operand);
        }
        self.after_dot = false;
    }

    fn end_sum(&mut self) {
        self.end_product();
        if let Some(product) = self.product.0.take() {
            self.sum.push(product);
        }
    }

    fn end_relation(&mut self) {
        self.end_sum();
        if let Some(sum) = self.sum.0.take() {
            self.relation.push(sum);
        }
    }

    fn end_term(&mut self) {
        self.end_relation();
        let term = self.relation.0.take().unwrap_or_default();
        self.terms = self.terms.max(term);
    }

    /// A part of a conditional, or the whole.
    fn end_part(&mut self) {
        self.end_term();
        let part = std::mem::take(&mut self.terms) + self.conditions;
        self.deepest = self.deepest.max(part);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    /// Round ones, a list or a map: what is in them is an operand.
    Operand,
    Arguments,
    /// Arguments of a method, or an index.
    Member,
}

#[derive(Debug)]
struct Level {
    bracket: Bracket,
    element: Element,
    deepest: usize,
}

impl Level {
    fn new(bracket: Bracket) -> Self {
        Self {
            bracket,
            element: Element::default(),
            deepest: 0,
        }
    }

    /// How many expressions end with this element.
    fn end_element(&mut self) -> usize {
        self.element.end_part();
        let ended = std::mem::take(&mut self.element);
        self.deepest = self.deepest.max(ended.deepest);
        ended.conditions - ended.open_conditions
    }
}

#[derive(Debug)]
struct Depths {
    levels: Vec<Level>,
    /// Of expressions within each other, here and anywhere.
    nesting: usize,
    deepest_nesting: usize,
    /// The sign before, if it was one.
    last: Option<u8>,
}

impl Default for Depths {
    fn default() -> Self {
        Self {
            levels: vec![Level::new(Bracket::Operand)],
            nesting: 1,
            deepest_nesting: 1,
            last: None,
        }
    }
}

impl Depths {
    fn take(&mut self, token: Token<'_>) -> Result<(), String> {
        let ends = matches!(token, Token::Sign(")" | "]" | "}" | "," | ":"));
        if self.nesting > DEPTH && !ends {
            return Err(nowhere(&format!(
                "expression recursion limit exceeded: {DEPTH}"
            )));
        }
        self.deepest_nesting = self.deepest_nesting.max(self.nesting);
        match token {
            Token::Operand("in") => self.here().end_relation(),
            Token::Operand(_) => {
                let element = self.here();
                let is_field = std::mem::take(&mut element.after_dot);
                element.operand = Some(element.operand.unwrap_or_default() + usize::from(is_field));
            }
            Token::Sign(sign) => self.sign(sign),
            Token::Open => {}
        }
        self.last = match token {
            Token::Sign(sign) => sign.bytes().next(),
            _ => None,
        };
        Ok(())
    }

    fn here(&mut self) -> &mut Element {
        let last = self.levels.len() - 1;
        &mut self.levels[last].element
    }

    fn sign(&mut self, sign: &str) {
        let last = self.last;
        let element = self.here();
        match sign {
            "(" | "[" | "{" => {
                let bracket = match (element.operand, sign) {
                    (None, _) => Bracket::Operand,
                    (Some(0), "(") => Bracket::Arguments,
                    _ => Bracket::Member,
                };
                self.levels.push(Level::new(bracket));
                self.nesting += 1;
            }
            ")" | "]" | "}" => self.close(sign),
            "." => element.after_dot = element.operand.is_some(),
            "*" | "/" | "%" => element.end_product(),
            // Before an operand it is a sign of that.
            "+" | "-" if element.operand.is_some() => element.end_sum(),
            "==" | "!=" | "<" | "<=" | ">" | ">=" => element.end_relation(),
            "&&" | "||" => element.end_term(),
            // Elsewhere it says that something may be missing.
            "?" if !matches!(last, Some(b'[' | b'{' | b',' | b'.')) => {
                element.conditions += 1;
                element.open_conditions += 1;
                element.end_part();
            }
            ":" if element.open_conditions > 0 => {
                element.end_part();
                element.open_conditions -= 1;
                self.nesting += 1;
            }
            "," | ":" => self.end_element(),
            _ => {}
        }
    }

    fn end_element(&mut self) {
        let last = self.levels.len() - 1;
        self.nesting -= self.levels[last].end_element();
    }

    fn close(&mut self, sign: &str) {
        // What was never opened is the parser's to complain about.
        if self.levels.len() == 1 {
            return;
        }
        self.end_element();
        let Some(level) = self.levels.pop() else {
            return;
        };
        self.nesting -= 1;
        let element = self.here();
        let before = element.operand.unwrap_or_default();
        element.operand = Some(match level.bracket {
            Bracket::Operand => level.deepest,
            Bracket::Arguments => before.max(level.deepest),
            Bracket::Member if sign == "]" => before.max(level.deepest) + 1,
            Bracket::Member => before.max(level.deepest + 1),
        });
    }

    fn finish(mut self) -> Result<usize, String> {
        while self.levels.len() > 1 {
            self.close(")");
        }
        self.end_element();
        let deepest = self.levels[0].deepest;
        if deepest > DEPTH {
            return Err(too_deep());
        }
        Ok(deepest.max(self.deepest_nesting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: &str = "max recursion depth exceeded";
    const LIMIT: &str = "expression recursion limit exceeded: 250";

    /// As the original judges them.
    #[test]
    fn depths_are_counted_as_by_the_original() {
        let around = |before: &str, count: usize, middle: &str, after: &str| {
            format!("{}{middle}{}", before.repeat(count), after.repeat(count))
        };
        type Of<'a> = &'a dyn Fn(usize) -> String;
        let sum: Of<'_> = &|n| format!("1{}==1", "+1".repeat(n - 1));
        let round: Of<'_> = &|n| around("(", n, "true", ")");
        let index: Of<'_> = &|n| format!("[1]{}==1", "[0]".repeat(n));
        let field: Of<'_> = &|n| format!("{{'x':1}}{}==1", ".x".repeat(n));
        let conditional: Of<'_> = &|n| around("true?true:", n, "true", "");
        let list: Of<'_> = &|n| around("[", n, "", "]");
        let map: Of<'_> = &|n| around("{1:", n, "1", "}");
        for (name, most, of, words) in [
            ("sum", 250, sum, MAX),
            ("round", 249, round, LIMIT),
            ("index", 249, index, MAX),
            ("field", 249, field, MAX),
            ("conditional", 249, conditional, LIMIT),
            ("list", 250, list, LIMIT),
            ("map", 249, map, LIMIT),
        ] {
            assert!(measure(&of(most)).is_ok(), "{name}");
            let refused = measure(&of(most + 1)).unwrap_err();
            assert_eq!(refused, format!("ERROR: <input>:-1:0: {words}"), "{name}");
        }
        for wide in [
            "a && ".repeat(5_000) + "a",
            "!".repeat(5_000) + "a",
            format!("[{}]", "1,".repeat(5_000)),
            format!("a{}", " && a.b[0] + 1 == 2 ? 1 : 2".repeat(200)),
            "1*1+".repeat(200) + "1",
        ] {
            assert!(measure(&wide).is_ok(), "{}", &wide[..20]);
        }
        let long = "a".repeat(LENGTH + 1);
        let words = "expression code point size exceeds limit: size: 100001, limit 100000";
        assert!(measure(&long).unwrap_err().ends_with(words));
    }

    #[test]
    fn texts_and_comments_hide_what_is_in_them() {
        for source in [
            r#"'((((' == "[[[[" // (((("#,
            r"r'\' + '\'(' + '''a'((''b''' + b'(((('",
            "a.`b-(c`",
        ] {
            assert!(measure(source).unwrap() < 6, "{source}");
        }
        for odd in [
            "é'ü\\é(",
            "\u{1F600}'",
            "'\\",
            "r",
            "0x",
            "1e+",
            "",
            ")]}",
            "?:?:,",
        ] {
            assert!(measure(odd).is_ok(), "{odd}");
        }
    }
}
