//! A person's own settings of the dashboard: `$XDG_CONFIG_HOME/orchestrate/config.toml`.
//!
//! Every problem is told at once, with file, line and column. Values that are not set stay `None`: flags and the terminal decide then.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cli::exit::CliError;
use crate::inventory::nearest_word;
use crate::tui::key_bindings::{KeyBindings, is_key_name};
use crate::tui::keymap::UiCommand;
use crate::tui::settings::MouseMode;
use crate::tui::theme::{ColorScheme, GraphStyle};

/// The keys of the file.
const SETTING_NAMES: [&str; 6] = ["theme", "ascii", "graph", "mouse", "readonly", "keys"];
/// The most bytes that are read of it.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DashboardConfig {
    /// The colours; `Some(None)`: as the terminal's background is.
    pub skin: Option<Option<ColorScheme>>,
    /// Whether only ASCII is drawn.
    pub ascii: Option<bool>,
    /// What graphs are drawn with.
    pub graph: Option<GraphStyle>,
    pub mouse: Option<MouseMode>,
    /// Whether nothing may be changed.
    pub readonly: bool,
    pub bindings: KeyBindings,
}

/// Reads it; a file that is not there says nothing.
///
/// # Errors
/// Every problem of it.
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

/// The skin of that name; `auto`: as the background is.
///
/// # Errors
/// The names that there are.
pub(crate) fn parse_color_scheme(name: &str) -> Result<Option<ColorScheme>, String> {
    if name == "auto" {
        return Ok(None);
    }
    let names: Vec<&str> = ColorScheme::ALL.iter().map(|skin| skin.name()).collect();
    ColorScheme::from_name(name).map(Some).ok_or_else(|| format!("there is no theme `{name}`: auto, {}", names.join(", ")))
}

/// What a text says, or every problem with its place.
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
    reader.problems.sort_by_key(|(at, _)| *at);
    let problems: Vec<String> = reader.problems.into_iter().map(|(_, text)| text).collect();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

struct ConfigReader<'a> {
    file_name: &'a str,
    text: &'a str,
    problems: Vec<(usize, String)>,
}

impl ConfigReader<'_> {
    fn add_problem(&mut self, at: usize, what: &str) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        self.problems.push((at, format!("{}:{line}:{column}: {what}", self.file_name)));
    }

    fn read_setting(&mut self, config: &mut DashboardConfig, key: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        match key.get_ref().as_ref() {
            "theme" => config.skin = self.read_word(value, parse_color_scheme),
            "ascii" => config.ascii = self.read_bool(value),
            "readonly" => config.readonly = self.read_bool(value).unwrap_or(false),
            "graph" => {
                config.graph = self.read_word(value, |word| match word {
                    "braille" => Ok(GraphStyle::Braille),
                    "block" => Ok(GraphStyle::Block),
                    "ascii" => Ok(GraphStyle::Ascii),
                    other => Err(format!("there is no graph `{other}`: braille, block, ascii")),
                });
            }
            "mouse" => {
                config.mouse = self.read_word(value, |word| {
                    let mut all = [MouseMode::Auto, MouseMode::On, MouseMode::Off].into_iter();
                    all.find(|mouse| mouse.name() == word).ok_or_else(|| format!("there is no mouse `{word}`: auto, on, off"))
                });
            }
            "keys" if value.get_ref().is_table() => {}
            "keys" => self.add_problem(value.span().start, "`keys` is a table: `[keys]`, then one `action = \"key\"` a line"),
            other => {
                let near = did_you_mean(other, SETTING_NAMES);
                self.add_problem(key.span().start, &format!("there is no setting `{other}`{near}"));
            }
        }
    }

    fn read_word<T>(&mut self, value: &Spanned<DeValue<'_>>, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let word = value.get_ref().as_str().ok_or_else(|| format!("a text is wanted, this is {}", value.get_ref().type_str()));
        match word.and_then(read) {
            Ok(value) => Some(value),
            Err(what) => {
                self.add_problem(value.span().start, &what);
                None
            }
        }
    }

    fn read_bool(&mut self, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        let found = value.get_ref().as_bool();
        if found.is_none() {
            self.add_problem(value.span().start, &format!("true or false is wanted, this is {}", value.get_ref().type_str()));
        }
        found
    }

    fn read_key_bindings(&mut self, bindings: &mut KeyBindings, table: &DeTable<'_>) {
        let mut places: Vec<(UiCommand, usize)> = Vec::new();
        for (action, value) in table {
            let at = action.span().start;
            let name = action.get_ref().as_ref();
            let Some(cmd) = bindings.command_by_name(name) else {
                let names: Vec<String> = bindings.command_names();
                let near = did_you_mean(name, names.iter().map(String::as_str));
                self.add_problem(at, &format!("there is no action `{name}`{near}"));
                continue;
            };
            if cmd == UiCommand::Interrupt {
                self.add_problem(at, "`interrupt` is Ctrl-C and stays so: it is the way out");
                continue;
            }
            let mut keys = Vec::new();
            let one = [value.clone()];
            for key in value.get_ref().as_array().map_or(&one[..], |list| &list[..]) {
                match key.get_ref().as_str() {
                    Some("none") => {}
                    Some("ctrl-c") => self.add_problem(key.span().start, "Ctrl-C is `interrupt` and stays so: it is the way out"),
                    Some(text) if is_key_name(text) => keys.push(text.to_owned()),
                    Some(text) => {
                        self.add_problem(key.span().start, &format!("`{text}` is no key: write x, X, ctrl-x, f5, pgdn, space, … or none"));
                    }
                    None => self.add_problem(key.span().start, "a key is a text, as in \"ctrl-x\"; several stand in [ ]"),
                }
            }
            bindings.rebind(cmd, &keys);
            places.push((cmd, value.span().start));
        }
        let Some(clash) = bindings.find_conflict() else { return };
        let blamed = places.iter().filter(|(cmd, _)| clash.commands.contains(cmd)).max_by_key(|(_, at)| *at);
        if let Some((cmd, at)) = blamed {
            let other = clash.commands.iter().find(|known| *known != cmd).unwrap_or(cmd).name();
            let place = clash.context.title();
            let text = format!("`{}` means `{other}` already ({place}); give that another key, or \"none\"", clash.key);
            self.add_problem(*at, &text);
        }
    }
}

/// `, did you mean …?` where a known word is near.
fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest_word(word, known).map_or_else(String::new, |known| format!(", did you mean `{known}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::keymap::KeyContext;

    fn problems(text: &str) -> Vec<String> {
        parse_config("c.toml", text).expect_err("it is wrong")
    }

    #[test]
    fn settings_are_read() {
        let text = "theme = \"tritanopia\"\nascii = true\ngraph = \"block\"\nmouse = \"off\"\nreadonly = true\n\
                    [keys]\ntheme = \"none\"\nfreeze = [\"F\", \"f9\"]\nprev-rank = \"(\"\n";
        let config = parse_config("c.toml", text).expect("it is right");
        assert_eq!((config.skin, config.ascii, config.graph), (Some(Some(ColorScheme::Tritanopia)), Some(true), Some(GraphStyle::Block)));
        assert_eq!((config.mouse, config.readonly), (Some(MouseMode::Off), true));
        let keys = |cmd| config.bindings.keys_for(cmd, &[KeyContext::Logs, KeyContext::Global]);
        assert_eq!(
            (keys(UiCommand::Theme), keys(UiCommand::Freeze).as_deref(), keys(UiCommand::PrevRank).as_deref()),
            (None, Some("F f9"), Some("("))
        );
        assert_eq!(parse_config("c.toml", "").expect("nothing is said"), DashboardConfig::default());
        assert_eq!(parse_config("c.toml", "theme = \"auto\"").expect("it is right").skin, Some(None));
    }

    #[test]
    fn every_problem_has_line_and_column() {
        let text = "theme = \"pink\"\nasci = true\nmouse = 3\n[keys]\ntear-dwon = \"X\"\nfreeze = \"ctrl-Q\"\ninterrupt = \"x\"\nquit = \"ctrl-c\"\n";
        assert_eq!(
            problems(text),
            [
                "c.toml:1:9: there is no theme `pink`: auto, dark, light, high-contrast, ansi16, deuteranopia, tritanopia, mono",
                "c.toml:2:1: there is no setting `asci`, did you mean `ascii`?",
                "c.toml:3:9: a text is wanted, this is integer",
                "c.toml:5:1: there is no action `tear-dwon`, did you mean `tear-down`?",
                "c.toml:6:10: `ctrl-Q` is no key: write x, X, ctrl-x, f5, pgdn, space, … or none",
                "c.toml:7:1: `interrupt` is Ctrl-C and stays so: it is the way out",
                "c.toml:8:8: Ctrl-C is `interrupt` and stays so: it is the way out",
            ]
        );
    }

    #[test]
    fn key_conflict_is_reported() {
        let taken = ["c.toml:2:10: `T` means `theme` already (Everywhere); give that another key, or \"none\""];
        assert_eq!(problems("[keys]\nfreeze = \"T\"\n"), taken);
        assert!(parse_config("c.toml", "[keys]\nfreeze = \"T\"\ntheme = \"f\"\n").is_ok(), "they may change places");
        assert!(problems("[keys]\nfreeze = \"T\ntheme = 3")[0].starts_with("c.toml:2:"), "a text without its end");
        assert_eq!(problems("keys = 3"), ["c.toml:1:8: `keys` is a table: `[keys]`, then one `action = \"key\"` a line"]);
    }
}
