use super::*;

fn variables() -> BTreeMap<&'static str, Type> {
    let object = Object {
        name: "selfType".to_owned(),
        fields: BTreeMap::from([
            ("a".to_owned(), Type::Int),
            ("list".to_owned(), Type::list(Type::Int)),
        ]),
    };
    BTreeMap::from([
        ("text", Type::String),
        ("number", Type::Int),
        ("list", Type::list(Type::Int)),
        ("map", Type::map(Type::String, Type::String)),
        ("object", Type::Object(Arc::new(object))),
        ("any", Type::Dyn),
    ])
}

fn complaint(source: &str) -> String {
    let first = |words: String| words.lines().next().unwrap_or_default().to_owned();
    Expression::compile(source, &variables()).map_or_else(first, |found| found.kind.to_string())
}

#[test]
fn values_get_names_where_that_is_known() {
    let source = "cel.bind(n, 1 + 1, n * n > 3)";
    let (bound, _) = Expression::compile_of_device(source).unwrap();
    assert_eq!(bound.kind, Type::Bool);
    let found = bound.evaluate(&[], &mut Meter::new(PER_CALL));
    assert_eq!(found, Ok(Value::Bool(true)));
    assert!(complaint(source).contains("undeclared reference to 'cel'"));
}

#[test]
fn types_are_checked() {
    for (source, expected) in [
        ("text", "string"),
        ("list.map(x, x * 2)", "list(int)"),
        ("list.filter(x, x > 1).size() == 1", "bool"),
        ("map.all(k, k == 'a')", "bool"),
        ("map.transformList(k, v, v.size())", "list(int)"),
        ("list.all(i, v, v > i)", "bool"),
        ("any.b.c == 'x' && any.d > 1", "bool"),
        ("object.?a.orValue(3)", "int"),
        ("map[?'x'].hasValue()", "bool"),
        ("number < 1.5", "bool"),
        ("[]", "list(dyn)"),
        ("type(number) == int", "bool"),
        ("quantity('1').isLessThan(quantity('2'))", "bool"),
        (
            "timestamp('2024-01-01T00:00:00Z') - duration('1h')",
            "timestamp",
        ),
        ("object.b == 1", "ERROR: <input>:1:7: undefined field 'b'"),
        (
            "text > 5",
            "ERROR: <input>:1:6: found no matching overload for '_>_' applied to '(string, int)'",
        ),
        (
            "text.startsWith(1)",
            "ERROR: <input>:1:16: found no matching overload for 'startsWith' applied to 'string.(int)'",
        ),
        (
            "nope(text)",
            "ERROR: <input>:1:5: undeclared reference to 'nope' (in container '')",
        ),
        (
            "nope.x == 1",
            "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')",
        ),
        (
            "nope.abs(1) == 1 && math.sign(1) == 1",
            "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')",
        ),
        (
            "text == 'a' || 1",
            "ERROR: <input>:1:16: expected type 'bool' but found 'int'",
        ),
        (
            "text.b == 1",
            "ERROR: <input>:1:5: type 'string' does not support field selection",
        ),
        (
            "number.all(x, x > 1)",
            "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        (
            "list.all(x, x == 'a')",
            "ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (
            "[1, 'a'].size() == 2",
            "ERROR: <input>:1:5: expected type 'int' but found 'string'",
        ),
        (
            "text.matches('[')",
            "ERROR: <input>:1:14: invalid matches argument",
        ),
    ] {
        assert_eq!(complaint(source), expected, "{source}");
    }
}

#[test]
fn functions_compute() {
    for source in [
        "url('https://example.com:80/a b?q=1').getEscapedPath() == '/a%20b' && !isURL('x y')",
        "url('https://example.com:80/').getQuery() == {} && url('http://h:1/').getHost() == 'h:1'",
        "ip('10.0.0.1').family() == 4 && ip.isCanonical('::1') && !ip.isCanonical('::0001')",
        "cidr('10.0.0.0/24').containsIP('10.0.0.5') && cidr('10.0.0.1/24').masked() == cidr('10.0.0.0/24')",
        "cidr('10.0.0.0/24').ip() == ip('10.0.0.0') && cidr('10.0.0.0/24').prefixLength() == 24",
        "quantity('1k').add(quantity('1k')).compareTo(quantity('2k')) == 0",
        "quantity('1k').sub(1).isLessThan(quantity('1k')) && quantity('1k').asInteger() == 1000",
        "duration('90s') < duration('2m') && duration('90s').getMinutes() == 1",
        "timestamp('2024-01-05T10:00:00Z') + duration('1h') == timestamp('2024-01-05T11:00:00Z')",
        "timestamp('2024-01-05T10:00:00Z').getHours('+02:00') == 12",
        "timestamp('2024-01-05T10:00:00Z') - timestamp('2024-01-05T09:00:00Z') == duration('3600s')",
        "string(duration('90s')) == '90s' && string(timestamp('2024-01-05T10:00:00Z')) == '2024-01-05T10:00:00Z'",
        "[duration('1s'), duration('2s')].sum() == duration('3s') && [duration('2s'), duration('1s')].min() == duration('1s')",
        "!format.dns1123Label().validate('abc').hasValue()",
        "format.named('dns1123Label').value().validate('A_').value().size() == 1",
        "!format.named('nope').hasValue()",
        "semver('1.3.0').isGreaterThan(semver('1.2.3')) && semver('v1.0', true).minor() == 0",
        "[1, 2].all(i, v, v == i + 1) && [5].transformList(i, v, v * 2) == [10]",
        "{'a': 'x'}.transformMap(k, v, v + k) == {'a': 'xa'} && {'a': 1}.exists(k, v, v == 1)",
        "[[1], [2]].all(i, v, v.all(j, w, w == i + 1 + j))",
        "['a', 'b'].exists_one(i, v, v == 'b') && ['a'].transformMapEntry(i, v, {v: i}) == {'a': 0}",
        "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 3]) && sets.equivalent([1, 1], [1])",
        "[1, 2, 3].sum() == 6 && [3, 1].max() == 3 && [1, 2].isSorted() && [1, 2, 1].lastIndexOf(1) == 2",
        "'x12y'.find('[0-9]+') == '12' && 'a1b2'.findAll('[0-9]', 1) == ['1']",
        "'%s-%d'.format(['a', 3]) == 'a-3'",
        "optional.of(1).orValue(2) == 1 && sign(quantity('-1')) == -1",
    ] {
        let compiled = Expression::compile(source, &BTreeMap::new());
        let expression = compiled.unwrap_or_else(|words| panic!("{source}: {words}"));
        assert_eq!(expression.kind, Type::Bool, "{source}");
        assert_eq!(
            expression.evaluate(&[], &mut Meter::new(PER_CALL)),
            Ok(Value::Bool(true)),
            "{source}"
        );
    }
}
