//! Which functions there are, and what they take and give.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::types::Type;

/// One way to call a function. In `takes` of a method, its object comes first.
#[derive(Debug)]
pub struct Overload {
    pub is_method: bool,
    pub takes: Vec<Type>,
    pub gives: Type,
}

/// `name: ways to call it`. A way is `(int) int` or, of a method, `string.(int) int`; capital letters are any type.
const TABLE: &str = "
_?_:_: (bool, A, A) A
_&&_: (bool, bool) bool
_||_: (bool, bool) bool
!_: (bool) bool
@not_strictly_false: (bool) bool
_==_: (A, A) bool
_!=_: (A, A) bool
-_: (int) int | (double) double
_+_: (int, int) int | (uint, uint) uint | (double, double) double | (string, string) string | (bytes, bytes) bytes | (list(A), list(A)) list(A) | (duration, duration) duration | (timestamp, duration) timestamp | (duration, timestamp) timestamp
_-_: (int, int) int | (uint, uint) uint | (double, double) double | (duration, duration) duration | (timestamp, timestamp) duration | (timestamp, duration) timestamp
_*_: (int, int) int | (uint, uint) uint | (double, double) double
_/_: (int, int) int | (uint, uint) uint | (double, double) double
_%_: (int, int) int | (uint, uint) uint
_[_]: (list(A), int) A | (map(A, B), A) B | (optional(list(A)), int) optional(A) | (optional(map(A, B)), A) optional(B)
_[?_]: (list(A), int) optional(A) | (map(A, B), A) optional(B) | (optional(list(A)), int) optional(A) | (optional(map(A, B)), A) optional(B)
@in: (A, list(A)) bool | (A, map(A, B)) bool
size: (string) int | (bytes) int | (list(A)) int | (map(A, B)) int | string.() int | bytes.() int | list(A).() int | map(A, B).() int
type: (A) type(A)
dyn: (A) dyn
int: (int) int | (uint) int | (double) int | (string) int | (duration) int | (timestamp) int
uint: (uint) uint | (int) uint | (double) uint | (string) uint
double: (double) double | (int) double | (uint) double | (string) double
bool: (bool) bool | (string) bool
string: (string) string | (bool) string | (bytes) string | (double) string | (duration) string | (int) string | (timestamp) string | (uint) string
bytes: (bytes) bytes | (string) bytes
duration: (duration) duration | (int) duration | (string) duration
timestamp: (timestamp) timestamp | (int) timestamp | (string) timestamp
contains: string.(string) bool
startsWith: string.(string) bool
endsWith: string.(string) bool
matches: string.(string) bool | (string, string) bool
getFullYear: timestamp.() int | timestamp.(string) int
getMonth: timestamp.() int | timestamp.(string) int
getDayOfYear: timestamp.() int | timestamp.(string) int
getDayOfMonth: timestamp.() int | timestamp.(string) int
getDate: timestamp.() int | timestamp.(string) int
getDayOfWeek: timestamp.() int | timestamp.(string) int
getHours: timestamp.() int | timestamp.(string) int | duration.() int
getMinutes: timestamp.() int | timestamp.(string) int | duration.() int
getSeconds: timestamp.() int | timestamp.(string) int | duration.() int
getMilliseconds: timestamp.() int | timestamp.(string) int | duration.() int
charAt: string.(int) string
indexOf: string.(string) int | string.(string, int) int | list(A).(A) int
lastIndexOf: string.(string) int | string.(string, int) int | list(A).(A) int
join: list(string).() string | list(string).(string) string
lowerAscii: string.() string
upperAscii: string.() string
trim: string.() string
replace: string.(string, string) string | string.(string, string, int) string
split: string.(string) list(string) | string.(string, int) list(string)
substring: string.(int) string | string.(int, int) string
format: string.(list(dyn)) string
reverse: list(A).() list(A)
strings.quote: (string) string
optional.of: (A) optional(A)
optional.ofNonZeroValue: (A) optional(A)
optional.none: () optional(A)
optional.unwrap: (list(optional(A))) list(A)
unwrapOpt: list(optional(A)).() list(A)
hasValue: optional(A).() bool
value: optional(A).() A
or: optional(A).(optional(A)) optional(A)
orValue: optional(A).(A) A
find: string.(string) string
findAll: string.(string) list(string) | string.(string, int) list(string)
isSorted: list(int).() bool | list(uint).() bool | list(double).() bool | list(bool).() bool | list(duration).() bool | list(timestamp).() bool | list(string).() bool | list(bytes).() bool
sum: list(int).() int | list(uint).() uint | list(double).() double | list(duration).() duration
min: list(int).() int | list(uint).() uint | list(double).() double | list(bool).() bool | list(duration).() duration | list(timestamp).() timestamp | list(string).() string | list(bytes).() bytes
max: list(int).() int | list(uint).() uint | list(double).() double | list(bool).() bool | list(duration).() duration | list(timestamp).() timestamp | list(string).() string | list(bytes).() bytes
slice: list(A).(int, int) list(A)
flatten: list(list(A)).() list(A) | list(dyn).(int) list(dyn)
distinct: list(A).() list(A)
sort: list(A).() list(A)
@sortByAssociatedKeys: list(A).(list(B)) list(A)
lists.range: (int) list(int)
cel.@mapInsert: (map(A, B), A, B) map(A, B) | (map(A, B), map(A, B)) map(A, B)
sets.contains: (list(A), list(A)) bool
sets.equivalent: (list(A), list(A)) bool
sets.intersects: (list(A), list(A)) bool
url: (string) Url
isURL: (string) bool
getScheme: Url.() string
getHost: Url.() string
getHostname: Url.() string
getPort: Url.() string
getEscapedPath: Url.() string
getQuery: Url.() map(string, list(string))
quantity: (string) Quantity
isQuantity: (string) bool
sign: (Quantity) int
isInteger: Quantity.() bool
asInteger: Quantity.() int
asApproximateFloat: Quantity.() double
add: Quantity.(Quantity) Quantity | Quantity.(int) Quantity
sub: Quantity.(Quantity) Quantity | Quantity.(int) Quantity
isGreaterThan: Quantity.(Quantity) bool | Version.(Version) bool
isLessThan: Quantity.(Quantity) bool | Version.(Version) bool
compareTo: Quantity.(Quantity) int | Version.(Version) int
semver: (string) Version | (string, bool) Version
isSemver: (string) bool | (string, bool) bool
major: Version.() int
minor: Version.() int
patch: Version.() int
ip: (string) Address | Network.() Address
isIP: (string) bool
ip.isCanonical: (string) bool
family: Address.() int
isUnspecified: Address.() bool
isLoopback: Address.() bool
isLinkLocalMulticast: Address.() bool
isLinkLocalUnicast: Address.() bool
isGlobalUnicast: Address.() bool
cidr: (string) Network
isCIDR: (string) bool
containsIP: Network.(string) bool | Network.(Address) bool
containsCIDR: Network.(string) bool | Network.(Network) bool
masked: Network.() Network
prefixLength: Network.() int
format.named: (string) optional(Format)
format.dns1123Label: () Format
format.dns1123Subdomain: () Format
format.dns1035Label: () Format
format.qualifiedName: () Format
format.dns1123LabelPrefix: () Format
format.dns1123SubdomainPrefix: () Format
format.dns1035LabelPrefix: () Format
format.labelValue: () Format
format.uri: () Format
format.uuid: () Format
format.byte: () Format
format.date: () Format
format.datetime: () Format
validate: Format.(string) optional(list(string))
path: Authorizer.(string) PathCheck
group: Authorizer.(string) GroupCheck
serviceAccount: Authorizer.(string, string) Authorizer
resource: GroupCheck.(string) ResourceCheck
subresource: ResourceCheck.(string) ResourceCheck
namespace: ResourceCheck.(string) ResourceCheck
name: ResourceCheck.(string) ResourceCheck
fieldSelector: ResourceCheck.(string) ResourceCheck
labelSelector: ResourceCheck.(string) ResourceCheck
check: PathCheck.(string) Decision | ResourceCheck.(string) Decision
allowed: Decision.() bool
reason: Decision.() string
errored: Decision.() bool
error: Decision.() string
";

/// Whoever may be compared with whom by order.
const ORDERED: [&str; 6] = ["bool", "string", "bytes", "timestamp", "duration", "int"];
const NUMBERS: [&str; 3] = ["int", "uint", "double"];

pub fn find(name: &str) -> Option<&'static [Overload]> {
    functions().get(name).map(Vec::as_slice)
}

/// The same name, for as long as the program runs.
pub fn name(name: &str) -> Option<&'static str> {
    functions().get_key_value(name).map(|(name, _)| *name)
}

fn functions() -> &'static BTreeMap<&'static str, Vec<Overload>> {
    static FUNCTIONS: OnceLock<BTreeMap<&'static str, Vec<Overload>>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let mut functions = BTreeMap::new();
        for line in TABLE.lines().filter(|line| !line.is_empty()) {
            if let Some((name, ways)) = line.split_once(": ") {
                functions.insert(name, ways.split(" | ").map(overload).collect());
            }
        }
        for name in ["_<_", "_<=_", "_>_", "_>=_"] {
            functions.insert(name, comparisons());
        }
        functions
    })
}

fn comparisons() -> Vec<Overload> {
    let same = ORDERED.iter().map(|name| (*name, *name));
    let mixed = NUMBERS
        .iter()
        .flat_map(|one| NUMBERS.iter().map(move |other| (*one, *other)));
    same.chain(mixed.skip(1))
        .map(|(one, other)| overload(&format!("({one}, {other}) bool")))
        .collect()
}

fn overload(text: &str) -> Overload {
    // What is called is the last pair of parentheses before the result.
    let (method, rest) = match text.split_once(".(") {
        Some((object, rest)) => (Some(object), rest),
        None => (None, text.trim_start_matches('(')),
    };
    let mut depth = 0;
    let end = rest.find(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth < 0
    });
    let (takes, gives) = rest.split_at(end.unwrap_or(0));
    let mut all: Vec<Type> = method.into_iter().map(read).collect();
    all.extend(split(takes).into_iter().map(read));
    Overload {
        is_method: method.is_some(),
        takes: all,
        gives: read(gives.trim_start_matches(')')),
    }
}

/// At commas that are in no parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

fn read(text: &str) -> Type {
    let text = text.trim();
    if let Some((name, parts)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let mut parts = split(parts).into_iter().map(read);
        let mut next = || parts.next().unwrap_or(Type::Dyn);
        return match name {
            "list" => Type::list(next()),
            "map" => Type::map(next(), next()),
            "optional" => Type::optional(next()),
            _ => Type::Type(Box::new(next())),
        };
    }
    match text {
        "A" => Type::Open(0),
        "B" => Type::Open(1),
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "Url" => Type::Opaque("kubernetes.URL"),
        "Quantity" => Type::Opaque("kubernetes.Quantity"),
        "Version" => Type::Opaque("kubernetes.Semver"),
        "Format" => Type::Opaque("kubernetes.NamedFormat"),
        "Address" => Type::Opaque("net.IP"),
        "Authorizer" => Type::Opaque("kubernetes.authorization.Authorizer"),
        "PathCheck" => Type::Opaque("kubernetes.authorization.PathCheck"),
        "GroupCheck" => Type::Opaque("kubernetes.authorization.GroupCheck"),
        "ResourceCheck" => Type::Opaque("kubernetes.authorization.ResourceCheck"),
        "Decision" => Type::Opaque("kubernetes.authorization.Decision"),
        "Network" => Type::Opaque("net.CIDR"),
        name => named(name).unwrap_or(Type::Dyn),
    }
}

/// A type by the name that expressions call it.
pub fn named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "dyn" => Type::Dyn,
        "int" => Type::Int,
        "null_type" => Type::Null,
        "string" => Type::String,
        "uint" => Type::Uint,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(Box::new(Type::Dyn)),
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "kubernetes.URL" => Type::Opaque("kubernetes.URL"),
        "kubernetes.Quantity" => Type::Opaque("kubernetes.Quantity"),
        "kubernetes.Semver" => Type::Opaque("kubernetes.Semver"),
        "kubernetes.NamedFormat" => Type::Opaque("kubernetes.NamedFormat"),
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read_as_they_are_written() {
        let ways = find("indexOf").unwrap();
        assert_eq!(ways.len(), 3);
        assert!(
            ways.iter()
                .all(|way| way.is_method && way.gives == Type::Int)
        );
        assert_eq!(ways[2].takes, [Type::list(Type::Open(0)), Type::Open(0)]);
        let ways = find("optional.none").unwrap();
        assert!(ways[0].takes.is_empty() && !ways[0].is_method);
        assert_eq!(ways[0].gives, Type::optional(Type::Open(0)));
        let ways = find("getQuery").unwrap();
        assert_eq!(
            ways[0].gives,
            Type::map(Type::String, Type::list(Type::String))
        );
        assert!(find("_<_").unwrap().len() > 10);
        assert!(find("nothing").is_none());
    }
}
