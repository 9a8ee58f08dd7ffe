//! What is wrong with expressions in the Common Expression Language, before anything is computed.

use cel::Env;

/// What a compiler says of the expression, if it cannot be one: its syntax is broken, or it speaks of what is not among
/// `variables`. Types are not looked at.
pub fn complaint(source: &str, variables: &[&str]) -> Option<String> {
    let failed = |words: String| Some(format!("compilation failed: {words}"));
    let program = match Env::stdlib().compile(source) {
        Ok(program) => program,
        // The original indents the lines that it quotes.
        Err(errors) if source.is_empty() => {
            let words = errors.to_string();
            let first = words.lines().next().unwrap_or_default();
            return failed(first.replace("<input>:1:1:", "<input>:1:0:"));
        }
        Err(errors) => return failed(errors.to_string().replace("\n| ", "\n | ")),
    };
    let references = program.references();
    let mut unknown: Vec<(usize, &str)> = references
        .variables()
        .into_iter()
        .filter(|name| !variables.contains(name) && !TYPES.contains(name))
        .filter(|name| !name.starts_with('@') && !is_bound(source, name))
        .filter_map(|name| Some((place_of(source, name)?, name)))
        .collect();
    unknown.sort_unstable();
    if unknown.is_empty() {
        return None;
    }
    let lines: Vec<String> = unknown
        .into_iter()
        .map(|(at, name)| {
            let before = &source[..at];
            let line = before.matches('\n').count() + 1;
            let column = at - before.rfind('\n').map_or(0, |end| end + 1);
            let quoted = source.lines().nth(line - 1).unwrap_or_default();
            format!(
                "ERROR: <input>:{line}:{}: undeclared reference to '{name}' (in container '')\n | {quoted}\n | {}^",
                column + 1,
                ".".repeat(column)
            )
        })
        .collect();
    failed(lines.join("\n"))
}

/// The type of an expression that is one literal, unless it is among `wanted`.
pub fn literal(source: &str, wanted: &[&str]) -> Option<&'static str> {
    let source = source.trim();
    let quoted =
        |mark: char| source.len() > 1 && source.starts_with(mark) && source.ends_with(mark);
    let found = if source.parse::<i64>().is_ok() {
        "int"
    } else if source.parse::<f64>().is_ok() {
        "double"
    } else if matches!(source, "true" | "false") {
        "bool"
    } else if source == "null" {
        "null_type"
    } else if quoted('\'') || quoted('"') {
        "string"
    } else {
        return None;
    };
    (!wanted.contains(&found)).then_some(found)
}

/// Types are names of values, too.
const TYPES: [&str; 11] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "uint",
];

/// Whether a macro makes the name: `list.all(name, …)`.
fn is_bound(source: &str, name: &str) -> bool {
    [format!("({name},"), format!("({name} ,")]
        .iter()
        .any(|binding| source.contains(binding))
}

/// Where a name stands by itself for the first time.
fn place_of(source: &str, name: &str) -> Option<usize> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.';
    source
        .match_indices(name)
        .find(|(at, _)| {
            let before = source[..*at].chars().next_back();
            let after = source[at + name.len()..].chars().next();
            !before.is_some_and(is_part)
                && !after.is_some_and(|letter| letter != '.' && is_part(letter))
        })
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_is_complained_about_in_the_words_people_know() {
        let expected = "compilation failed: ERROR: <input>:1:8: Syntax error: mismatched input '<EOF>' expecting \
                        {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                        BYTES, IDENTIFIER}\n | self > \n | .......^";
        assert_eq!(complaint("self > ", &["self"]).as_deref(), Some(expected));
    }

    #[test]
    fn names_must_be_known() {
        assert_eq!(complaint("self.all(x, x > 1)", &["self"]), None);
        assert_eq!(
            complaint("self.b == nope.c", &["self"]).as_deref(),
            Some(
                "compilation failed: ERROR: <input>:1:11: undeclared reference to 'nope' (in container '')\n | self.b == nope.c\n | ..........^"
            )
        );
    }
}
