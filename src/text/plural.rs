//! Numbers of things: `1 host`, `2 hosts`.

use super::translation::Lang;

pub(crate) fn count_noun(n: usize, noun: &str) -> String {
    let plural = if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) { "es" } else { "s" };
    format!("{n} {noun}{}", if n == 1 { "" } else { plural })
}

impl Lang {
    /// The same in this language.
    pub(crate) fn count(self, n: usize, noun: &str) -> String {
        self.message(&count_noun(n, noun)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_are_counted() {
        assert_eq!([0, 1, 2].map(|n| count_noun(n, "host")), ["0 hosts", "1 host", "2 hosts"]);
        assert_eq!(Lang::Zh.count(2, "host"), "2 台主机");
    }
}
