//! A text in both languages with places for what a log line says and for where it was.

use std::collections::BTreeMap;

use crate::text::shell_quote::quote;

/// A text in both languages; `{name}` is replaced by what the group `name` matched, or by what is known of the place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalizedTemplate {
    pub en: String,
    pub zh: String,
}

/// What the places of a template get.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateValues {
    /// What the groups of the pattern matched: text of a host.
    pub matched: BTreeMap<String, String>,
    /// What this program knows of the finding, such as `on`, its hosts. Wins over a group of the same name.
    pub known: BTreeMap<String, String>,
}

impl LocalizedTemplate {
    /// With the values in their places, as they are.
    pub fn fill(&self, chinese: bool, values: &TemplateValues) -> String {
        fill_places(self.text(chinese), values, |_, value, _| value.to_owned())
    }

    /// As [`LocalizedTemplate::fill`], for a text with commands that a person pastes into a shell: what a host wrote is one word there,
    /// no option, and has letters, digits, blanks and `_@%+=:,./~()[]-` alone; other text is not shown, the place has its name.
    pub fn fill_commands(&self, chinese: bool, values: &TemplateValues) -> String {
        let is_allowed = |c: char| c.is_alphanumeric() || " _@%+=:,./~()[]-".contains(c);
        fill_places(self.text(chinese), values, |name, value, in_quotes| {
            let word = if value.is_empty() { String::new() } else { quote(value) };
            let is_shown = value.chars().all(is_allowed) && !value.starts_with('-') && (word == value || !in_quotes);
            if is_shown { word } else { name.to_uppercase() }
        })
    }

    fn text(&self, chinese: bool) -> &str {
        if chinese { &self.zh } else { &self.en }
    }
}

/// One pass: a value is not searched for places. `word`: the name of a place, what a host wrote for it, and whether the template has an
/// odd number of single quotes before it.
fn fill_places(template: &str, values: &TemplateValues, word: impl Fn(&str, &str, bool) -> String) -> String {
    let (mut text, mut rest, mut in_quotes) = (String::with_capacity(template.len()), template, false);
    let is_odd = |text: &str| text.matches('\'').count() % 2 == 1;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        in_quotes ^= is_odd(before);
        let place = after.split_once('}').and_then(|(name, tail)| {
            let matched = || values.matched.get(name).map(|value| word(name, value, in_quotes));
            Some((values.known.get(name).cloned().or_else(matched)?, tail))
        });
        match place {
            // A pattern may match without this group: then nothing is named, and no gap is left.
            Some((value, tail)) if value.is_empty() => rest = tail.strip_prefix(' ').unwrap_or(tail),
            Some((value, tail)) => {
                text.push_str(&value);
                rest = tail;
            }
            None => {
                text.push('{');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    // An empty match at the end leaves a separator: `a port is taken already: `.
    text.truncate(text.trim_end_matches([':', '：', ' ']).len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(matched: &[(&str, &str)]) -> TemplateValues {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        TemplateValues { matched: map(matched), known: map(&[("on", "gpu01,gpu02"), ("ssh", "-p 2222 'u s'@gpu01")]) }
    }

    fn template(text: &str) -> LocalizedTemplate {
        LocalizedTemplate { en: text.to_owned(), zh: text.to_owned() }
    }

    #[test]
    fn missing_group_leaves_no_gap() {
        let text = template("port {port} is taken by {name}: {why}");
        assert_eq!(text.fill(false, &values(&[("port", "29500"), ("name", ""), ("why", "")])), "port 29500 is taken by");
        assert_eq!(text.fill(false, &values(&[("port", ""), ("name", "x y"), ("why", "z")])), "port is taken by x y: z");
    }

    /// What a rank printed is pasted into the shell of the laptop.
    #[test]
    fn text_of_a_host_is_one_word_of_a_suggested_command() {
        let text = template("ls -ld {path} on {on}; docker info --format '{{.Proxy}}'; sh -c 'command -v {path}'; ssh {ssh}");
        for (path, word, quoted) in [
            ("/data/x.bin", "/data/x.bin", "/data/x.bin"),
            ("/my data", "'/my data'", "PATH"),
            ("/数据/a (1)", "'/数据/a (1)'", "PATH"),
            ("/x; reboot", "PATH", "PATH"),
            ("/x' reboot '", "PATH", "PATH"),
            ("/x$(reboot)`reboot`", "PATH", "PATH"),
            // A value with the name of a place would end the quotes around it.
            ("/x{ssh}", "PATH", "PATH"),
            ("--help", "PATH", "PATH"),
        ] {
            let wanted = format!(
                "ls -ld {word} on gpu01,gpu02; docker info --format '{{{{.Proxy}}}}'; sh -c 'command -v {quoted}'; ssh -p 2222 'u s'@gpu01"
            );
            assert_eq!(text.fill_commands(false, &values(&[("path", path)])), wanted);
        }
        assert_eq!(template("{path}{file} {on}").fill(true, &values(&[("path", ""), ("file", "/a b")])), "/a b gpu01,gpu02");
    }

    #[test]
    fn known_value_wins_over_a_group_of_its_name() {
        assert_eq!(template("exec --limit {on}").fill_commands(false, &values(&[("on", "$(reboot)")])), "exec --limit gpu01,gpu02");
    }
}
