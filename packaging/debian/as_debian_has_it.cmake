# Run by CPack over the installed tree before it is packed: what Debian's policy wants and other systems do not. The manual page and
# the log of changes are compressed; the licence is named in "copyright" and lies in /usr/share/common-licenses.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
set(doc ${share}/doc/longhaul)

file(REMOVE ${doc}/LICENSE)
configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright ${doc}/copyright COPYONLY)

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH's, where that is set
file(WRITE ${doc}/changelog
  "longhaul (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n"
  "  * What users notice of each version: /usr/share/doc/longhaul/CHANGELOG.md\n\n"
  " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
file(GLOB pages ${share}/man/man1/*.1)
execute_process(COMMAND gzip -9n ${doc}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
