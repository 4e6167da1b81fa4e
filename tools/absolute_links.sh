#!/bin/sh
# absolute_links.sh OWNER/NAME TAG: makes links and images of README.md absolute, as PyPI's page needs them.
set -e
images="https://raw.githubusercontent.com/$1/$2"
sed -i.relative -E \
  -e "s#(!\[[^]]*\]\()(docs/)#\1$images/\2#g" \
  -e "s#\]\((docs/|[A-Z]+\.)#](https://github.com/$1/blob/$2/\1#g" README.md
rm README.md.relative
