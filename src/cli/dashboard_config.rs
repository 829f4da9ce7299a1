//! The user's settings of the dashboard: `$XDG_CONFIG_HOME/orchestrate/config.toml`.
//!
//! All problems are reported together, each with file, line and column. A value that is not set stays `None`: then flags and the terminal
//! decide.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cli::exit::CliError;
use crate::inventory::nearest_word;
use crate::tui::key_bindings::{KeyBindings, is_key_name};
use crate::tui::keymap::UiCommand;
use crate::tui::settings::MouseMode;
use crate::tui::theme::{ColorScheme, GraphStyle};

const SETTING_NAMES: [&str; 6] = ["theme", "ascii", "graph", "mouse", "readonly", "keys"];
/// A longer file is cut off here.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DashboardConfig {
    /// `Some(None)`: chosen by the terminal's background.
    pub color_scheme: Option<Option<ColorScheme>>,
    pub ascii: Option<bool>,
    pub graph: Option<GraphStyle>,
    pub mouse: Option<MouseMode>,
    pub readonly: bool,
    pub bindings: KeyBindings,
}

/// Reads the file; a missing file means no settings.
///
/// # Errors
/// Every problem in the file.
#[expect(clippy::disallowed_methods, reason = "a file of this laptop")]
pub(crate) fn read_config(home: &Path) -> Result<DashboardConfig, CliError> {
    use std::io::Read as _;
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let path = base.unwrap_or_else(|| home.join(".config")).join("orchestrate/config.toml");
    let cannot = |error: std::io::Error| CliError::Usage(format!("{}: cannot be read: {error}", path.display()));
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(DashboardConfig::default()),
        Err(error) => return Err(cannot(error)),
    };
    let mut text = String::new();
    file.take(MAX_CONFIG_BYTES).read_to_string(&mut text).map_err(cannot)?;
    parse_config(&path.display().to_string(), &text).map_err(|problems| CliError::Usage(problems.join("\n")))
}

/// `auto` gives `None`: chosen by the terminal's background.
///
/// # Errors
/// The list of known themes.
pub(crate) fn parse_color_scheme(name: &str) -> Result<Option<ColorScheme>, String> {
    if name == "auto" {
        return Ok(None);
    }
    let names: Vec<&str> = ColorScheme::ALL.iter().map(|scheme| scheme.name()).collect();
    ColorScheme::from_name(name).map(Some).ok_or_else(|| format!("unknown theme `{name}`: write auto, {}", names.join(", ")))
}

fn parse_config(name: &str, text: &str) -> Result<DashboardConfig, Vec<String>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut reader = ConfigReader { file_name: name, text, problems: Vec::new() };
    for error in &errors {
        reader.add_problem(error.span().map_or(0, |span| span.start), error.message());
    }
    let mut config = DashboardConfig::default();
    for (key, value) in root.get_ref() {
        reader.read_setting(&mut config, key, value);
    }
    if let Some(keys) = root.get_ref().get("keys").and_then(|value| value.get_ref().as_table()) {
        reader.read_key_bindings(&mut config.bindings, keys);
    }
    reader.problems.sort_by_key(|(offset, _)| *offset);
    let problems: Vec<String> = reader.problems.into_iter().map(|(_, text)| text).collect();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

struct ConfigReader<'a> {
    file_name: &'a str,
    text: &'a str,
    problems: Vec<(usize, String)>,
}

impl ConfigReader<'_> {
    fn add_problem(&mut self, offset: usize, problem: &str) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        self.problems.push((offset, format!("{}:{line}:{column}: {problem}", self.file_name)));
    }

    fn read_setting(&mut self, config: &mut DashboardConfig, key: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        match key.get_ref().as_ref() {
            "theme" => config.color_scheme = self.read_name(value, parse_color_scheme),
            "ascii" => config.ascii = self.read_bool(value),
            "readonly" => config.readonly = self.read_bool(value).unwrap_or(false),
            "graph" => {
                config.graph = self.read_name(value, |name| match name {
                    "braille" => Ok(GraphStyle::Braille),
                    "block" => Ok(GraphStyle::Block),
                    "ascii" => Ok(GraphStyle::Ascii),
                    other => Err(format!("unknown graph style `{other}`: write braille, block or ascii")),
                });
            }
            "mouse" => {
                config.mouse = self.read_name(value, |name| match name {
                    "auto" => Ok(MouseMode::Auto),
                    "on" => Ok(MouseMode::On),
                    "off" => Ok(MouseMode::Off),
                    other => Err(format!("unknown mouse mode `{other}`: write auto, on or off")),
                });
            }
            "keys" if value.get_ref().is_table() => {}
            "keys" => self.add_problem(value.span().start, "`keys` is not a table: write `[keys]`, then `action = \"key\"` lines"),
            other => {
                let suggestion = did_you_mean(other, SETTING_NAMES);
                self.add_problem(key.span().start, &format!("unknown setting `{other}`{suggestion}"));
            }
        }
    }

    fn read_name<T>(&mut self, value: &Spanned<DeValue<'_>>, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let name = value.get_ref().as_str().ok_or_else(|| format!("expected a string, found {}", value.get_ref().type_str()));
        match name.and_then(parse) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.add_problem(value.span().start, &problem);
                None
            }
        }
    }

    fn read_bool(&mut self, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        let found = value.get_ref().as_bool();
        if found.is_none() {
            self.add_problem(value.span().start, &format!("expected true or false, found {}", value.get_ref().type_str()));
        }
        found
    }

    fn read_key_bindings(&mut self, bindings: &mut KeyBindings, table: &DeTable<'_>) {
        let mut rebound: Vec<(UiCommand, usize)> = Vec::new();
        for (action, value) in table {
            let offset = action.span().start;
            let name = action.get_ref().as_ref();
            let Some(cmd) = bindings.command_by_name(name) else {
                let names: Vec<String> = bindings.command_names();
                let suggestion = did_you_mean(name, names.iter().map(String::as_str));
                self.add_problem(offset, &format!("unknown action `{name}`{suggestion}"));
                continue;
            };
            if cmd == UiCommand::Interrupt {
                self.add_problem(offset, "`interrupt` is always Ctrl-C: it cannot be rebound");
                continue;
            }
            let mut keys = Vec::new();
            let one = [value.clone()];
            for key in value.get_ref().as_array().map_or(&one[..], |list| &list[..]) {
                match key.get_ref().as_str() {
                    Some("none") => {}
                    Some("ctrl-c") => self.add_problem(key.span().start, "Ctrl-C is always `interrupt`: choose another key"),
                    Some(text) if is_key_name(text) => keys.push(text.to_owned()),
                    Some(text) => {
                        self.add_problem(
                            key.span().start,
                            &format!("unknown key `{text}`: write x, X, ctrl-x, f5, pgdn, space, … or none"),
                        );
                    }
                    None => self.add_problem(key.span().start, "expected a key such as \"ctrl-x\", or a list of keys in [ ]"),
                }
            }
            bindings.rebind(cmd, &keys);
            rebound.push((cmd, value.span().start));
        }
        let Some(conflict) = bindings.find_conflict() else { return };
        let last = rebound.iter().filter(|(cmd, _)| conflict.commands.contains(cmd)).max_by_key(|(_, offset)| *offset);
        if let Some((cmd, offset)) = last {
            let other = conflict.commands.iter().find(|known| *known != cmd).unwrap_or(cmd).name();
            let context = conflict.context.title();
            let text =
                format!("`{}` is already bound to `{other}` ({context}); bind `{other}` to another key or to \"none\"", conflict.key);
            self.add_problem(*offset, &text);
        }
    }
}

fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest_word(name, known).map_or_else(String::new, |known| format!(", did you mean `{known}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::keymap::{KeyContext, Screen};

    fn problems(text: &str) -> Vec<String> {
        parse_config("c.toml", text).expect_err("invalid")
    }

    #[test]
    fn settings_are_read() {
        let text = "theme = \"tritanopia\"\nascii = true\ngraph = \"block\"\nmouse = \"off\"\nreadonly = true\n\
                    [keys]\ntheme = \"none\"\nfreeze = [\"F\", \"f9\"]\nprev-rank = \"(\"\n";
        let config = parse_config("c.toml", text).expect("valid");
        assert_eq!(
            (config.color_scheme, config.ascii, config.graph),
            (Some(Some(ColorScheme::Tritanopia)), Some(true), Some(GraphStyle::Block))
        );
        assert_eq!((config.mouse, config.readonly), (Some(MouseMode::Off), true));
        let keys = |cmd| config.bindings.keys_for(cmd, &[KeyContext::Screen(Screen::Logs), KeyContext::Global]);
        assert_eq!(
            (keys(UiCommand::Theme), keys(UiCommand::Freeze).as_deref(), keys(UiCommand::PrevRank).as_deref()),
            (None, Some("F f9"), Some("("))
        );
        assert_eq!(parse_config("c.toml", "").expect("valid"), DashboardConfig::default());
        assert_eq!(parse_config("c.toml", "theme = \"auto\"").expect("valid").color_scheme, Some(None));
    }

    #[test]
    fn every_problem_has_line_and_column() {
        let text = "theme = \"pink\"\nasci = true\nmouse = 3\n[keys]\ntear-dwon = \"X\"\nfreeze = \"ctrl-Q\"\ninterrupt = \"x\"\nquit = \"ctrl-c\"\n";
        assert_eq!(
            problems(text),
            [
                "c.toml:1:9: unknown theme `pink`: write auto, dark, light, high-contrast, ansi16, deuteranopia, tritanopia, mono",
                "c.toml:2:1: unknown setting `asci`, did you mean `ascii`?",
                "c.toml:3:9: expected a string, found integer",
                "c.toml:5:1: unknown action `tear-dwon`, did you mean `tear-down`?",
                "c.toml:6:10: unknown key `ctrl-Q`: write x, X, ctrl-x, f5, pgdn, space, … or none",
                "c.toml:7:1: `interrupt` is always Ctrl-C: it cannot be rebound",
                "c.toml:8:8: Ctrl-C is always `interrupt`: choose another key",
            ]
        );
    }

    #[test]
    fn key_conflict_is_reported() {
        let expected = ["c.toml:2:10: `T` is already bound to `theme` (Everywhere); bind `theme` to another key or to \"none\""];
        assert_eq!(problems("[keys]\nfreeze = \"T\"\n"), expected);
        assert!(parse_config("c.toml", "[keys]\nfreeze = \"T\"\ntheme = \"f\"\n").is_ok(), "two actions can swap keys");
        assert!(problems("[keys]\nfreeze = \"T\ntheme = 3")[0].starts_with("c.toml:2:"), "an unterminated string");
        assert_eq!(problems("keys = 3"), ["c.toml:1:8: `keys` is not a table: write `[keys]`, then `action = \"key\"` lines"]);
    }
}
