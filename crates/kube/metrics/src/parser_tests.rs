//! The parser against examples, against another one that is slow and simple, and against noise.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn shown(page: &[u8]) -> String {
    let mut text = String::new();
    let mut parser = match Parser::new(page) {
        Ok(parser) => parser,
        Err(error) => return format!("{error}\n"),
    };
    loop {
        match parser.sample() {
            Ok(None) => return text,
            Ok(Some(sample)) => {
                text.push_str(sample.name);
                for label in sample.labels {
                    let sign = if label.escaped { "~" } else { "=" };
                    text.push_str(&format!(" {}{sign}{}", label.name, label.raw));
                }
                text.push_str(&format!(" {} {:?}\n", sample.value, sample.timestamp));
            }
            Err(error) => return format!("{text}{error}\n"),
        }
    }
}

#[track_caller]
fn check(page: &str, expected: Expect) {
    expected.assert_eq(&shown(page.as_bytes()));
}

#[test]
fn what_a_kubelet_writes() {
    check(
        "# HELP node_cpu [STABLE] Cumulative\n# TYPE node_cpu counter\nnode_cpu 357.35491 1633253809720\n\
         c_cpu{container=\"c\",namespace=\"n\",pod=\"p\"} 4.7 1633253812125\n\
         c_cpu{container=\"d\",namespace=\"n\",pod=\"p\"} 1.794767396e+09\n# EOF comment\nerror 0",
        expect![[r#"
            node_cpu 357.35491 Some(1633253809720)
            c_cpu container=c namespace=n pod=p 4.7 Some(1633253812125)
            c_cpu container=d namespace=n pod=p 1794767396 None
            error 0 None
        "#]],
    );
}

#[test]
fn blanks_and_commas_wherever_they_may_be() {
    check(
        "\n \t\n  a \t 1 \t 2 \t\na{}3\na {b = \"c\" , d=\"\",} 4\na{ } +Inf\n#\n#x\n# TYPE\n# TYPEx\na:b{_c=\"}\"} NaN\n",
        expect![[r#"
            a 1 Some(2)
            a 3 None
            a b=c d= 4 None
            a inf None
            a:b _c=} NaN None
        "#]],
    );
}

/// Labels that were read before are known again, whatever is missing, new or in another order.
#[test]
fn families_that_tell_of_the_same() {
    check(
        "a{x=\"1\"} 1\na{x=\"2\"} 2\na{x=\"3\"} 3\n\
         b{x=\"1\"} 4\nb{x=\"3\"}5\nb{x=\"4\"} 6\nb{x=\"3\"} 7\n\
         c{y=\"1\"} 8\nc{y=\"2\"} 9\n\
         d{y=\"1\"} 10\nd 11\nd{y=\"2\",z=\"\\\"\"} 12\nd{y=\"2\"} 13\n\
         a{x=\"2\"} 14\na{x=\"1\"} 15\n{\"q\",x=\"1\"} 16\nq{x=\"1\"}\n",
        expect![[r#"
            a x=1 1 None
            a x=2 2 None
            a x=3 3 None
            b x=1 4 None
            b x=3 5 None
            b x=4 6 None
            b x=3 7 None
            c y=1 8 None
            c y=2 9 None
            d y=1 10 None
            d 11 None
            d y=2 z~\" 12 None
            d y=2 13 None
            a x=2 14 None
            a x=1 15 None
             x=1 16 None
            line 17: no value after the name
        "#]],
    );
}

#[test]
fn quotes_and_escapes() {
    check(
        r#"a{b="\\\"\n\x",c="é\\"} 1
{"a.b",c="d"} 2
{"a.b","c d"="e"} 3
"#,
        expect![[r#"
            a b~\\\"\n\x c~é\\ 1 None
             c=d 2 None
             c d=e 3 None
        "#]],
    );
}

#[test]
fn errors_name_the_line() {
    for (line, fault) in [
        ("<html>", Fault::NoName),
        ("1a 2", Fault::NoName),
        ("é 2", Fault::NoName),
        ("# TYPE x blob", Fault::UnknownType),
        ("# TYPE x", Fault::UnknownType),
        ("# TYPE 1x gauge", Fault::NoName),
        ("# HELP \"x", Fault::NoName),
        ("a", Fault::NoValue),
        ("a{", Fault::Labels),
        ("a{b", Fault::Labels),
        ("a{b}", Fault::Labels),
        ("a{b=c} 1", Fault::Labels),
        ("a{b=\"c} 1", Fault::Labels),
        ("a{b=\"c\\\"} 1", Fault::Labels),
        ("a{b=\"c\\", Fault::Labels),
        ("a{b=\"c\"d=\"e\"} 1", Fault::Labels),
        ("a{,} 1", Fault::Labels),
        ("a{b:c=\"d\"} 1", Fault::Labels),
        ("a{\"b\"} 1", Fault::Labels),
        ("{} 1", Fault::Labels),
        ("{\"a\",\"b\"} 1", Fault::Labels),
        ("a{b=\"c\"}", Fault::NoValue),
        ("a x", Fault::Value),
        ("a 1\r", Fault::Value),
        ("a 1{", Fault::Timestamp),
        ("a 1 -5", Fault::Timestamp),
        ("a 1 2.5", Fault::Excess),
        ("a 1 99999999999999999999", Fault::Timestamp),
        ("a 1 2 3", Fault::Excess),
        ("a 1 # {b=\"c\"} 2", Fault::Timestamp),
        ("+ 1", Fault::NoName),
    ] {
        let page = format!("ok 1\n# fine\n{line}\nok 2\n");
        let mut parser = Parser::new(page.as_bytes()).unwrap();
        assert!(parser.sample().unwrap().is_some());
        let error = parser.sample().unwrap_err();
        assert_eq!(error, SyntaxError { line: 3, fault }, "{line:?}");
        assert_eq!(parser.sample().unwrap(), None);
    }
    let broken = Parser::new(b"ok 1\nok{a=\"\xff\"} 1\n").unwrap_err();
    assert_eq!((broken.line, broken.fault), (2, Fault::NotText));
}

/// The same grammar, a character at a time and without regard for speed.
mod slow {
    pub fn parse(page: &[u8]) -> Option<Vec<String>> {
        let mut samples = Vec::new();
        for line in std::str::from_utf8(page).ok()?.split('\n') {
            let mut reader = Reader(line.chars().collect(), 0);
            reader.space();
            match reader.peek() {
                None => {}
                Some('#') => comment(&mut reader)?,
                Some(_) => samples.push(sample(&mut reader)?),
            }
        }
        Some(samples)
    }

    struct Reader(Vec<char>, usize);

    impl Reader {
        fn peek(&self) -> Option<char> {
            self.0.get(self.1).copied()
        }

        fn space(&mut self) -> bool {
            let before = self.1;
            while matches!(self.peek(), Some(' ' | '\t')) {
                self.1 += 1;
            }
            self.1 > before
        }

        fn take(&mut self, wanted: impl Fn(usize, char) -> bool) -> String {
            let mut text = String::new();
            while let Some(next) = self.peek().filter(|next| wanted(text.len(), *next)) {
                text.push(next);
                self.1 += 1;
            }
            text
        }

        fn sign(&mut self, sign: char) -> Option<()> {
            (self.peek()? == sign).then(|| self.1 += 1)
        }

        fn name(&mut self, colons: bool) -> String {
            self.take(|at, c| {
                c.is_ascii_alphabetic()
                    || c == '_'
                    || colons && c == ':'
                    || at > 0 && c.is_ascii_digit()
            })
        }

        fn quoted(&mut self) -> Option<String> {
            self.sign('"')?;
            let mut text = String::new();
            loop {
                let next = self.peek()?;
                self.1 += 1;
                match next {
                    '"' => return Some(text),
                    '\\' => {
                        text.push('\\');
                        text.push(self.peek()?);
                        self.1 += 1;
                    }
                    other => text.push(other),
                }
            }
        }

        fn word(&mut self) -> String {
            self.take(|_, c| !matches!(c, ' ' | '\t' | '{'))
        }
    }

    fn comment(reader: &mut Reader) -> Option<()> {
        reader.1 += 1;
        if !reader.space() {
            return Some(());
        }
        let word = reader.take(|at, _| at < 4);
        if !["TYPE", "HELP"].contains(&&*word) || !reader.space() {
            return Some(());
        }
        match reader.peek() {
            Some('"') => {
                reader.quoted()?;
            }
            _ if reader.name(true).is_empty() => return None,
            _ => {}
        }
        reader.space();
        let rest: String = reader.0[reader.1..].iter().collect();
        let kinds = ["counter", "gauge", "histogram", "summary", "untyped"];
        (word == "HELP" || kinds.contains(&rest.trim_end_matches([' ', '\t']))).then_some(())
    }

    fn sample(reader: &mut Reader) -> Option<String> {
        let name = reader.name(true);
        let mut text = name.clone();
        let mut name_is_due = name.is_empty();
        reader.space();
        if reader.peek() == Some('{') {
            reader.1 += 1;
            loop {
                reader.space();
                let label = match reader.peek()? {
                    '}' if !name_is_due => break,
                    '"' => {
                        let quoted = reader.quoted()?;
                        reader.space();
                        if reader.peek()? != '=' {
                            if !std::mem::take(&mut name_is_due) {
                                return None;
                            }
                            more(reader)?;
                            continue;
                        }
                        quoted
                    }
                    _ => reader.name(false),
                };
                if label.is_empty() && reader.0[reader.1 - 1] != '"' {
                    return None;
                }
                reader.space();
                reader.sign('=')?;
                reader.space();
                let raw = reader.quoted()?;
                let sign = if raw.contains('\\') { "~" } else { "=" };
                text.push_str(&format!(" {label}{sign}{raw}"));
                more(reader)?;
            }
            reader.1 += 1;
        } else if name_is_due {
            return None;
        }
        reader.space();
        let word = reader.word();
        let value: f64 = word.parse().ok()?;
        if value.is_nan() && word.starts_with(['+', '-']) {
            return None;
        }
        if value.is_infinite() && !word.to_lowercase().contains('i') {
            return None;
        }
        reader.space();
        let stamp = reader.take(|_, c| c.is_ascii_digit());
        let stamp = match stamp.is_empty() {
            true => None,
            false => Some(stamp.parse::<i64>().ok()?),
        };
        reader.space();
        reader.peek().is_none().then_some(())?;
        Some(format!("{text} {value} {stamp:?}"))
    }

    fn more(reader: &mut Reader) -> Option<()> {
        reader.space();
        match reader.peek()? {
            ',' => reader.1 += 1,
            '}' => {}
            _ => return None,
        }
        Some(())
    }
}

fn same_as_slow(page: &[u8]) -> Result<(), TestCaseError> {
    let text = shown(page);
    match slow::parse(page) {
        Some(samples) => prop_assert_eq!(text.lines().collect::<Vec<_>>(), samples),
        None => prop_assert!(
            text.lines()
                .last()
                .is_some_and(|last| last.starts_with("line ")),
            "{text}"
        ),
    }
    Ok(())
}

/// Made of pieces of the format, so that many are nearly right.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-c_:]{1,3}",
        "[ \t]{0,2}",
        "[{}=,\"\\\\#]",
        "[0-9.eE+-]{1,4}",
        Just("\n".to_owned()),
        Just("a{b=\"c\",d=\"e\"} 1 2\n".to_owned()),
        Just("a{b=\"".to_owned()),
        Just("\",c=\"".to_owned()),
        Just("\"} 1".to_owned()),
        Just("# TYPE a counter\n".to_owned()),
        Just("# HELP ".to_owned()),
        Just("NaN".to_owned()),
        "\\PC",
    ];
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn as_the_slow_one_says(page in pieces()) {
        same_as_slow(page.as_bytes())?;
    }

    #[test]
    fn no_bytes_are_too_bad(page in proptest::collection::vec(any::<u8>(), 0..64)) {
        same_as_slow(&page)?;
    }
}
