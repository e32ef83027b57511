//! `nigh completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::error::CliError;
use crate::output;

/// In bash: names first, else commands and options.
const BASH: &str = r#"
_nigh_named() {
    local name
    COMPREPLY=()
    while IFS= read -r name; do
        COMPREPLY+=("$name")
    done < <(command nigh __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ "${#COMPREPLY[@]}" -eq 0 ]; then
        _nigh "$@"
        return
    fi
    # A bucket or a folder goes on.
    case "${COMPREPLY[0]}" in
        */) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -F _nigh_named -o bashdefault -o default nigh
"#;
/// The same in zsh. The last lines of clap's script choose `_nigh`; these replace them.
const ZSH: &str = r#"_nigh_named() {
    local -a names
    names=("${(@f)$(command nigh __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -z "$names[1]" ]]; then
        _nigh "$@"
    elif [[ "$names[1]" == */ ]]; then
        compadd -S '' -a names
    else
        compadd -a names
    fi
}

compdef _nigh_named nigh
if [ "$funcstack[1]" = "_nigh" ]; then
    _nigh_named "$@"
fi
"#;
/// How those last lines begin.
const ZSH_CHOICE: &str = "if [ \"$funcstack[1]\" = \"_nigh\" ]; then";
/// The same in fish, which joins what several `complete` know.
const FISH: &str = "
complete -c nigh -a '(command nigh __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
";

/// Options of `nigh completions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  source <(nigh completions bash)                                     this shell
  nigh completions bash > /etc/bash_completion.d/nigh                 all users
  nigh completions zsh > ~/.zfunc/_nigh                               a folder of fpath
  nigh completions fish > ~/.config/fish/completions/nigh.fish

In bash, zsh and fish the names of functions, buckets, objects, invocations, events, keys, namespaces, nodes and settings
are completed, too, as the running node knows them.")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the completions of the command `C`.
pub(crate) fn run<C: CommandFactory>(args: &CompletionsArgs) -> Result<(), CliError> {
    output::bytes(script::<C>(args.shell).as_bytes())
}

fn script<C: CommandFactory>(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut C::command(), "nigh", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => text + BASH,
        Shell::Zsh => match text.rfind(ZSH_CHOICE) {
            Some(at) => text[..at].to_owned() + ZSH,
            None => text,
        },
        Shell::Fish => text + FISH,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;

    #[test]
    fn the_scripts_ask_for_names_and_still_know_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script::<Cli>(shell);
            assert!(script.contains("nigh __complete -- ") && script.contains("activations"), "{shell}");
        }
        let zsh = script::<Cli>(Shell::Zsh);
        assert_eq!(zsh.matches(ZSH_CHOICE).count(), 1);
        assert!(zsh.trim_end().ends_with("fi") && zsh.contains("compdef _nigh_named nigh"), "{zsh}");
    }

    #[test]
    fn bash_takes_names_where_there_are_some_and_else_commands() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nigh");
        // It answers as a node with one function does, to the words that are asked for.
        std::fs::write(&program, "#!/bin/sh\n[ \"$*\" = \"__complete -- invoke bl\" ] && echo blur\nexit 0\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let script_file = folder.path().join("script");
        std::fs::write(&script_file, script::<Cli>(Shell::Bash)).unwrap();
        let completed = |words: &str, at: usize, word: &str, before: &str| {
            let line = format!(
                "source {}; COMP_WORDS=({words}); COMP_CWORD={at}; _nigh_named nigh '{word}' '{before}'; \
                 printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                script_file.display()
            );
            let path = format!("{}:/usr/bin:/bin", folder.path().display());
            let ran = std::process::Command::new("bash").args(["-c", &line]).env("PATH", path).output().unwrap();
            String::from_utf8(ran.stdout).unwrap()
        };
        assert_eq!(completed("nigh invoke bl", 2, "bl", "invoke"), "blur\n");
        assert!(completed("nigh inv", 1, "inv", "nigh").contains("invoke"));
    }
}
