//! What is wrong with expressions in the Common Expression Language, before anything is computed.

use std::collections::BTreeMap;

use plimsoll_expressions::{Bounds, Expression, Type};

/// Compiles an expression about variables of which nothing is known but their names. The error is what a compiler says.
pub fn compile(source: &str, variables: &[&str]) -> Result<Expression, String> {
    let kind = |name: &str| match name {
        "authorizer" => Type::Opaque("kubernetes.authorization.Authorizer"),
        "authorizer.requestResource" => Type::Opaque("kubernetes.authorization.ResourceCheck"),
        _ => Type::Dyn,
    };
    let variables = variables.iter().map(|name| (*name, kind(name))).collect();
    Expression::compile(source, &variables).map_err(failed)
}

/// Compiles an expression about variables of known types and sizes, and tells the most that it can cost.
pub fn compile_bounded(
    source: &str,
    variables: &BTreeMap<&str, Type>,
    bounds: &Bounds,
) -> Result<(Expression, u64), String> {
    Expression::compile_bounded(source, variables, bounds).map_err(failed)
}

/// Compiles an expression about a device, and tells the most that it can cost.
pub fn compile_of_device(source: &str) -> Result<(Expression, u64), String> {
    Expression::compile_of_device(source).map_err(failed)
}

fn failed(words: String) -> String {
    format!("compilation failed: {words}")
}

/// The type of an expression, if it is known and not among `wanted`.
pub fn other_than(expression: &Expression, wanted: &[&str]) -> Option<String> {
    let found = match &expression.kind {
        Type::Dyn => return None,
        Type::Null => "null_type".to_owned(),
        kind => kind.to_string(),
    };
    (!wanted.contains(&found.as_str())).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(source: &str) -> Option<String> {
        compile(source, &["self"]).err()
    }

    #[test]
    fn syntax_is_complained_about_in_the_words_people_know() {
        let expected = "compilation failed: ERROR: <input>:1:8: Syntax error: mismatched input '<EOF>' expecting \
                        {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                        BYTES, IDENTIFIER}\n | self > \n | .......^";
        assert_eq!(complaint("self > ").as_deref(), Some(expected));
    }

    #[test]
    fn names_must_be_known() {
        assert_eq!(complaint("self.all(x, x > 1)"), None);
        assert_eq!(
            complaint("self.b == nope.c").as_deref(),
            Some(
                "compilation failed: ERROR: <input>:1:11: undeclared reference to 'nope' (in container '')\n | self.b == nope.c\n | ..........^"
            )
        );
    }
}
